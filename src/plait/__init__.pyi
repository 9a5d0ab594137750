"""Public names of plait and the modules they are imported from on first use."""

from plait._version import (
    __version__ as __version__,
)
from plait.cells import (
    ElmanCell as ElmanCell,
    GRUCell as GRUCell,
    LSTMCell as LSTMCell,
)
from plait.lab.training.fit import (
    fit as fit,
)
from plait.lab.training.ppo.fit import (
    fit_policy as fit_policy,
)
from plait.lab.training.ppo.rollout import (
    evaluate_policy as evaluate_policy,
)
from plait.lab.training.prediction import (
    predict as predict,
)
from plait.lab.training.session import (
    load as load,
)
from plait.memory import (
    FullMemory as FullMemory,
    NoMemory as NoMemory,
    RelevancyMemory as RelevancyMemory,
    TopKMemory as TopKMemory,
    UniformMemory as UniformMemory,
    WindowMemory as WindowMemory,
)
from plait.models import (
    GORU as GORU,
    GRU as GRU,
    LSTM as LSTM,
    RNN as RNN,
    SAB as SAB,
    ExpRNN as ExpRNN,
    MemLSTM as MemLSTM,
    MemRNN as MemRNN,
    OrthRNN as OrthRNN,
    Recurrent as Recurrent,
    RelGRU as RelGRU,
    RelLSTM as RelLSTM,
    RelRNN as RelRNN,
    SelfAttentive as SelfAttentive,
    State as State,
    Trace as Trace,
    Transformer as Transformer,
    UniLSTM as UniLSTM,
    UniRNN as UniRNN,
)
