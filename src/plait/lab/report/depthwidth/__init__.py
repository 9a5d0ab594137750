"""Depth against width in a report: figure 1 of Levine et al., and its sweep of learning rates."""
