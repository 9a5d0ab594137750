"""Depth and width for a budget: shapes, parameter counts, costs, scaling laws and published models."""

from plait.depthwidth.planner.config_file import ModelConfig, read_config
from plait.depthwidth.planner.cost import Price, price
from plait.depthwidth.planner.count import Architecture, Count, Experts, count_params
from plait.depthwidth.planner.guideline import (
    GUIDELINE,
    Estimate,
    Fit,
    Optimum,
    optimal_shape,
    param_count,
    transition_params,
    transition_width,
    width_step,
)
from plait.depthwidth.planner.judgement import Comparison, Judgement, compare, judge
from plait.depthwidth.planner.laws import LAWS, Evidence, Law, evidence
from plait.depthwidth.planner.plan import Plan, Shape, plan
from plait.depthwidth.planner.published_models import MODELS, Model

__all__ = [
    "GUIDELINE",
    "LAWS",
    "MODELS",
    "Architecture",
    "Comparison",
    "Count",
    "Estimate",
    "Evidence",
    "Experts",
    "Fit",
    "Judgement",
    "Law",
    "Model",
    "ModelConfig",
    "Optimum",
    "Plan",
    "Price",
    "Shape",
    "compare",
    "count_params",
    "evidence",
    "judge",
    "optimal_shape",
    "param_count",
    "plan",
    "price",
    "read_config",
    "transition_params",
    "transition_width",
    "width_step",
]
