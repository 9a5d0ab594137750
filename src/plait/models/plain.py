"""Named models without a memory: `torch.nn.RNN`, `LSTM` and `GRU`, and three with orthogonal matrices."""

from __future__ import annotations

import torch

from plait.cells import ElmanCell, GRUCell, LSTMCell
from plait.memory import NoMemory
from plait.models.named import NamedModel
from plait.models.self_attentive import Mix

__all__ = ["GORU", "GRU", "LSTM", "RNN", "ExpRNN", "OrthRNN"]


class RNN(NamedModel):
    """An Elman network without memory: `torch.nn.RNN`.

    Use it as the baseline of `RelRNN`. Its gradients vanish or explode over long delays: a gated cell
    (`LSTM`), an orthogonal matrix (`ExpRNN`) or a memory (`RelRNN`) carries them further.

    Args:
        input_size: number of input features.
        hidden_size: number of features of h_t, per direction.
        num_layers: number of stacked layers, as in `torch.nn.LSTM`.
        bias: whether the cells have biases.
        batch_first: input and output are (B, T, feature) instead of (T, B, feature); a state never is.
        dropout: applied to the output of every layer but the last, while training.
        bidirectional: two directions, each with its own cells and memory, outputs concatenated: whole
            sequences only, no streaming.
        proj_size: must be 0, `torch.nn.LSTM`'s default; project the output with `torch.nn.Linear`.
        device: device of the weights.
        dtype: dtype of the weights.
        nonlinearity: nonlinearity of the Elman cell: tanh, relu, modrelu, identity.
        initialiser: initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.
        truncate: cut the recurrent gradient every `truncate` steps; None for never.
        backend: "auto", or one of reference, torch, cpu, cluster, triton, which never falls back to another.
    """

    cell_type = ElmanCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        nonlinearity: str = "tanh",
        initialiser: str = "henaff",
        mix: Mix = 0.5,
        truncate: int | None = None,
        backend: str = "auto",
    ) -> None:
        sizes = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        memory = NoMemory()
        cell_options = {"initialiser": initialiser, "nonlinearity": nonlinearity}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)


class LSTM(NamedModel):
    """An LSTM without memory: `torch.nn.LSTM`.

    Use it as the baseline of `RelLSTM`, or for `reset` and `forget_bias`, which torch's layer lacks.
    Where a few inputs matter many steps later, use `RelLSTM`.

    Args:
        input_size: number of input features.
        hidden_size: number of features of h_t, per direction.
        num_layers: number of stacked layers, as in `torch.nn.LSTM`.
        bias: whether the cells have biases.
        batch_first: input and output are (B, T, feature) instead of (T, B, feature); a state never is.
        dropout: applied to the output of every layer but the last, while training.
        bidirectional: two directions, each with its own cells and memory, outputs concatenated: whole
            sequences only, no streaming.
        proj_size: must be 0, `torch.nn.LSTM`'s default; project the output with `torch.nn.Linear`.
        device: device of the weights.
        dtype: dtype of the weights.
        forget_bias: initial bias of the forget gate; 1 is common, None for torch's initialisation.
        chrono: draw forget-gate biases for lifetimes of up to this many steps; not with
            forget_bias.
        initialiser: initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.
        truncate: cut the recurrent gradient every `truncate` steps; None for never.
        backend: "auto", or one of reference, torch, cpu, cluster, triton, which never falls back to another.
    """

    cell_type = LSTMCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        forget_bias: float | None = None,
        chrono: int | None = None,
        initialiser: str = "xavier",
        mix: Mix = 0.5,
        truncate: int | None = None,
        backend: str = "auto",
    ) -> None:
        sizes = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        memory = NoMemory()
        cell_options = {"initialiser": initialiser, "forget_bias": forget_bias, "chrono": chrono}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)


class GRU(NamedModel):
    """A GRU without memory: `torch.nn.GRU`.

    Use it as the baseline of `RelGRU`, or for `reset` and `forget_bias`, which torch's layer lacks. Where
    a few inputs matter many steps later, use `RelGRU`.

    Args:
        input_size: number of input features.
        hidden_size: number of features of h_t, per direction.
        num_layers: number of stacked layers, as in `torch.nn.LSTM`.
        bias: whether the cells have biases.
        batch_first: input and output are (B, T, feature) instead of (T, B, feature); a state never is.
        dropout: applied to the output of every layer but the last, while training.
        bidirectional: two directions, each with its own cells and memory, outputs concatenated: whole
            sequences only, no streaming.
        proj_size: must be 0, `torch.nn.LSTM`'s default; project the output with `torch.nn.Linear`.
        device: device of the weights.
        dtype: dtype of the weights.
        forget_bias: initial bias of the forget gate; 1 is common, None for torch's initialisation.
        chrono: draw forget-gate biases for lifetimes of up to this many steps; not with
            forget_bias.
        initialiser: initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.
        truncate: cut the recurrent gradient every `truncate` steps; None for never.
        backend: "auto", or one of reference, torch, cpu, cluster, triton, which never falls back to another.
    """

    cell_type = GRUCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        forget_bias: float | None = None,
        chrono: int | None = None,
        initialiser: str = "xavier",
        mix: Mix = 0.5,
        truncate: int | None = None,
        backend: str = "auto",
    ) -> None:
        sizes = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        memory = NoMemory()
        cell_options = {"initialiser": initialiser, "forget_bias": forget_bias, "chrono": chrono}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)


class OrthRNN(NamedModel):
    """An Elman network with modrelu whose recurrent matrix is initialised as a rotation.

    The matrix is trained freely; use `ExpRNN` to keep it orthogonal.

    Args:
        input_size: number of input features.
        hidden_size: number of features of h_t, per direction.
        num_layers: number of stacked layers, as in `torch.nn.LSTM`.
        bias: whether the cells have biases.
        batch_first: input and output are (B, T, feature) instead of (T, B, feature); a state never is.
        dropout: applied to the output of every layer but the last, while training.
        bidirectional: two directions, each with its own cells and memory, outputs concatenated: whole
            sequences only, no streaming.
        proj_size: must be 0, `torch.nn.LSTM`'s default; project the output with `torch.nn.Linear`.
        device: device of the weights.
        dtype: dtype of the weights.
        nonlinearity: nonlinearity of the Elman cell: tanh, relu, modrelu, identity.
        initialiser: initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.
        truncate: cut the recurrent gradient every `truncate` steps; None for never.
        backend: "auto", or one of reference, torch, cpu, cluster, triton, which never falls back to another.
    """

    cell_type = ElmanCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        nonlinearity: str = "modrelu",
        initialiser: str = "henaff",
        mix: Mix = 0.5,
        truncate: int | None = None,
        backend: str = "auto",
    ) -> None:
        sizes = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        memory = NoMemory()
        cell_options = {"initialiser": initialiser, "nonlinearity": nonlinearity}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)


class ExpRNN(NamedModel):
    """An Elman network with modrelu whose recurrent matrix stays orthogonal: V = V_0 exp(A − Aᵀ), A trained.

    V_0 is the initialiser's rotation. `Recipe(orthogonal_lr=…)` sets a separate learning rate for A. Use
    it as a baseline without a memory; `OrthRNN` trains the matrix freely.

    Args:
        input_size: number of input features.
        hidden_size: number of features of h_t, per direction.
        num_layers: number of stacked layers, as in `torch.nn.LSTM`.
        bias: whether the cells have biases.
        batch_first: input and output are (B, T, feature) instead of (T, B, feature); a state never is.
        dropout: applied to the output of every layer but the last, while training.
        bidirectional: two directions, each with its own cells and memory, outputs concatenated: whole
            sequences only, no streaming.
        proj_size: must be 0, `torch.nn.LSTM`'s default; project the output with `torch.nn.Linear`.
        device: device of the weights.
        dtype: dtype of the weights.
        nonlinearity: nonlinearity of the Elman cell: tanh, relu, modrelu, identity.
        initialiser: initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.
        truncate: cut the recurrent gradient every `truncate` steps; None for never.
        backend: "auto", or one of reference, torch, cpu, cluster, triton, which never falls back to another.

    >>> V = ExpRNN(3, 8).layers[0].cell.weight_hh
    >>> torch.allclose(V.T @ V, torch.eye(8), atol=1e-6)
    True
    """

    cell_type = ElmanCell
    orthogonal = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        nonlinearity: str = "modrelu",
        initialiser: str = "henaff",
        mix: Mix = 0.5,
        truncate: int | None = None,
        backend: str = "auto",
    ) -> None:
        sizes = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        memory = NoMemory()
        cell_options = {"initialiser": initialiser, "nonlinearity": nonlinearity}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)


class GORU(NamedModel):
    """A gated orthogonal recurrent unit: a GRU with modrelu whose candidate's matrix V_n stays orthogonal.

    r = σ(U_r x_t + V_r h_{t−1} + b_r), z = σ(U_z x_t + V_z h_{t−1} + b_z),
    n = modrelu(U_n x_t + b_n + r (V_n h_{t−1} + b'_n)), h_t = (1 − z) n + z h_{t−1}.

    V_n = V_0 exp(A − Aᵀ) as in `ExpRNN`; V_r and V_z are initialised as rotations too, and trained
    freely. Use it as a baseline without a memory that can forget; `ExpRNN` cannot.

    Args:
        input_size: number of input features.
        hidden_size: number of features of h_t, per direction.
        num_layers: number of stacked layers, as in `torch.nn.LSTM`.
        bias: whether the cells have biases.
        batch_first: input and output are (B, T, feature) instead of (T, B, feature); a state never is.
        dropout: applied to the output of every layer but the last, while training.
        bidirectional: two directions, each with its own cells and memory, outputs concatenated: whole
            sequences only, no streaming.
        proj_size: must be 0, `torch.nn.LSTM`'s default; project the output with `torch.nn.Linear`.
        device: device of the weights.
        dtype: dtype of the weights.
        forget_bias: initial bias of the forget gate; 1 is common, None for torch's initialisation.
        chrono: draw forget-gate biases for lifetimes of up to this many steps; not with
            forget_bias.
        initialiser: initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.
        truncate: cut the recurrent gradient every `truncate` steps; None for never.
        backend: "auto", or one of reference, torch, cpu, cluster, triton, which never falls back to another.
    """

    cell_type = GRUCell
    orthogonal = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        forget_bias: float | None = None,
        chrono: int | None = None,
        initialiser: str = "henaff",
        mix: Mix = 0.5,
        truncate: int | None = None,
        backend: str = "auto",
    ) -> None:
        sizes = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        memory = NoMemory()
        cell_options = {
            "initialiser": initialiser,
            "forget_bias": forget_bias,
            "chrono": chrono,
            "nonlinearity": "modrelu",
        }
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)
