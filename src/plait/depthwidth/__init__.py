"""Depth and width of self-attention networks: a planner, and separation ranks.

`plait.depthwidth.planner` turns a parameter budget into a depth and a width, and counts and prices models;
`plait.depthwidth.rank` has bounds and exact separation ranks. Both need only numpy.
"""
