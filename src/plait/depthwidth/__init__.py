"""What depth buys in a self-attention network: bounds, exact separation ranks, and a planner.

Plain numbers: numpy is all this room loads. torch is imported only by what needs it, a GPU device or
`measure`, matplotlib only by a picture.
"""

from __future__ import annotations

from plait.depthwidth.best import Match, best_bounds, min_width_to_match
from plait.depthwidth.bounds import (
    Bounds,
    MaxForm,
    depth_threshold,
    max_form_lower,
    multiset_lower,
    regime,
    residual_correction,
    sum_index_count,
    thm1_bounds,
    thm2_bounds,
    thm2_upper_raw,
    transition_depth,
)
from plait.depthwidth.certificate import Certificate, certify
from plait.depthwidth.check import Checked, check_certificate, short_chance
from plait.depthwidth.config_file import ModelConfig, read_config
from plait.depthwidth.cost import Price, price
from plait.depthwidth.count import Architecture, Count, Experts, count_params
from plait.depthwidth.echelon import rank_mod_p
from plait.depthwidth.epsilon import EpsilonRank, epsilon_rank, measure, network_epsilon_rank
from plait.depthwidth.evaluate import Word
from plait.depthwidth.gram import gram_dimensions, gram_upper, log3_gram_upper
from plait.depthwidth.guideline import (
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
from plait.depthwidth.laws import LAWS, Evidence, Law, evidence
from plait.depthwidth.models import MODELS, Model
from plait.depthwidth.multiset import log3_multiset
from plait.depthwidth.network import Weights, draw_weights, gram_forward, linear_attention_forward
from plait.depthwidth.plan import Comparison, Judgement, Plan, Shape, compare, judge, plan
from plait.depthwidth.rank import (
    Problem,
    RankResult,
    rank_of_weights,
    sep_rank_components,
    sep_rank_exact,
)

__all__ = [
    "GUIDELINE", "LAWS", "MODELS", "Architecture", "Bounds", "Certificate", "Checked", "Comparison", "Count",
    "EpsilonRank", "Estimate", "Evidence", "Experts", "Fit", "Judgement", "Law", "Match", "MaxForm", "Model",
    "ModelConfig", "Optimum", "Plan", "Price", "Problem", "RankResult", "Shape", "Weights", "Word",
    "best_bounds", "certify", "check_certificate", "compare", "count_params", "depth_threshold",
    "draw_weights", "epsilon_rank", "evidence", "gram_dimensions", "gram_forward", "gram_upper", "judge",
    "linear_attention_forward", "log3_gram_upper", "log3_multiset", "max_form_lower", "measure",
    "min_width_to_match", "multiset_lower", "network_epsilon_rank", "optimal_shape", "param_count", "plan",
    "price", "rank_mod_p", "rank_of_weights", "read_config", "regime", "residual_correction",
    "sep_rank_components", "sep_rank_exact", "short_chance", "sum_index_count", "thm1_bounds", "thm2_bounds",
    "thm2_upper_raw", "transition_depth", "transition_params", "transition_width", "width_step",
]  # fmt: skip
