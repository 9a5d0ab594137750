"""Separation ranks of self-attention networks: bounds, exact ranks and certificates. Requires only numpy."""

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
from plait.depthwidth.multiset import log3_multiset
from plait.depthwidth.rank.best_bounds import Match, best_bounds, min_width_to_match
from plait.depthwidth.rank.certificate import Certificate, certify
from plait.depthwidth.rank.certificate_check import CertificateCheck, check_certificate, miss_chance
from plait.depthwidth.rank.echelon import rank_mod_p
from plait.depthwidth.rank.epsilon import EpsilonRank, epsilon_rank, measure, network_epsilon_rank
from plait.depthwidth.rank.evaluate import Word
from plait.depthwidth.rank.exact import (
    Problem,
    RankResult,
    rank_of_weights,
    sep_rank_components,
    sep_rank_exact,
)
from plait.depthwidth.rank.gram import gram_dimensions, gram_upper, log3_gram_upper
from plait.depthwidth.rank.network import Weights, draw_weights, gram_forward, linear_attention_forward

__all__ = [
    "Bounds",
    "Certificate",
    "CertificateCheck",
    "EpsilonRank",
    "Match",
    "MaxForm",
    "Problem",
    "RankResult",
    "Weights",
    "Word",
    "best_bounds",
    "certify",
    "check_certificate",
    "depth_threshold",
    "draw_weights",
    "epsilon_rank",
    "gram_dimensions",
    "gram_forward",
    "gram_upper",
    "linear_attention_forward",
    "log3_gram_upper",
    "log3_multiset",
    "max_form_lower",
    "measure",
    "min_width_to_match",
    "miss_chance",
    "multiset_lower",
    "network_epsilon_rank",
    "rank_mod_p",
    "rank_of_weights",
    "regime",
    "residual_correction",
    "sep_rank_components",
    "sep_rank_exact",
    "sum_index_count",
    "thm1_bounds",
    "thm2_bounds",
    "thm2_upper_raw",
    "transition_depth",
]
