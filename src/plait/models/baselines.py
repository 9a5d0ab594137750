"""Named models with other memories, the baselines of those with relevancy screening."""

from __future__ import annotations

import torch

from plait.cells import ElmanCell, LSTMCell
from plait.memory import FullMemory, TopKMemory, UniformMemory
from plait.models.named import NamedModel
from plait.models.self_attentive import Mix

__all__ = ["SAB", "MemLSTM", "MemRNN", "UniLSTM", "UniRNN"]


class MemRNN(NamedModel):
    """An Elman network that attends over all its past states; time grows with T², memory with T.

    Use it where sequences are so short that all states fit; `RelRNN` has a memory of fixed size.

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
    memory_type = FullMemory

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
        memory = FullMemory()
        cell_options = {"initialiser": initialiser, "nonlinearity": nonlinearity}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)


class MemLSTM(NamedModel):
    """An LSTM that attends over all its past states; time grows with T², memory with T.

    Use it where sequences are so short that all states fit; `RelLSTM` has a memory of fixed size.

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
    memory_type = FullMemory

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
        memory = FullMemory()
        cell_options = {"initialiser": initialiser, "forget_bias": forget_bias, "chrono": chrono}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)


class UniRNN(NamedModel):
    """An Elman network with uniform writing: a `window`, and every `every`-th state that left it.

    Use it as the baseline of `RelRNN`: its memory has the same size and does not choose.

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
        window: ν, number of latest states that can be read.
        capacity: ρ, number of states kept beyond the window.
        every: keep every n-th state.
        nonlinearity: nonlinearity of the Elman cell: tanh, relu, modrelu, identity.
        initialiser: initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.
        truncate: cut the recurrent gradient every `truncate` steps; None for never.
        backend: "auto", or one of reference, torch, cpu, cluster, triton, which never falls back to another.
    """

    cell_type = ElmanCell
    memory_type = UniformMemory

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
        window: int = 10,
        capacity: int = 10,
        every: int = 10,
        nonlinearity: str = "tanh",
        initialiser: str = "henaff",
        mix: Mix = 0.5,
        truncate: int | None = None,
        backend: str = "auto",
    ) -> None:
        sizes = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        memory = UniformMemory(window, capacity, every)
        cell_options = {"initialiser": initialiser, "nonlinearity": nonlinearity}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)


class UniLSTM(NamedModel):
    """An LSTM with uniform writing: a `window`, and every `every`-th state that left it.

    Use it as the baseline of `RelLSTM`: its memory has the same size and does not choose.

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
        window: ν, number of latest states that can be read.
        capacity: ρ, number of states kept beyond the window.
        every: keep every n-th state.
        forget_bias: initial bias of the forget gate; 1 is common, None for torch's initialisation.
        chrono: draw forget-gate biases for lifetimes of up to this many steps; not with
            forget_bias.
        initialiser: initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.
        truncate: cut the recurrent gradient every `truncate` steps; None for never.
        backend: "auto", or one of reference, torch, cpu, cluster, triton, which never falls back to another.
    """

    cell_type = LSTMCell
    memory_type = UniformMemory

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
        window: int = 10,
        capacity: int = 10,
        every: int = 10,
        forget_bias: float | None = None,
        chrono: int | None = None,
        initialiser: str = "xavier",
        mix: Mix = 0.5,
        truncate: int | None = None,
        backend: str = "auto",
    ) -> None:
        sizes = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        memory = UniformMemory(window, capacity, every)
        cell_options = {"initialiser": initialiser, "forget_bias": forget_bias, "chrono": chrono}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)


class SAB(NamedModel):
    """Sparse attentive backtracking on an LSTM, in our definition.

    Every `every`-th state is kept, the `top_k` of highest energy are read, and the recurrent gradient is
    cut every `truncate` steps while attention carries it further back. Its memory grows with T; `RelLSTM`
    has one of fixed size.

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
        top_k: number of states read, those of highest energy.
        every: keep every n-th state.
        forget_bias: initial bias of the forget gate; 1 is common, None for torch's initialisation.
        chrono: draw forget-gate biases for lifetimes of up to this many steps; not with
            forget_bias.
        initialiser: initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.
        truncate: cut the recurrent gradient every `truncate` steps; None for never.
        backend: "auto", or one of reference, torch, cpu, cluster, triton, which never falls back to another.
    """

    cell_type = LSTMCell
    memory_type = TopKMemory

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
        top_k: int = 10,
        every: int = 10,
        forget_bias: float | None = None,
        chrono: int | None = None,
        initialiser: str = "xavier",
        mix: Mix = 0.5,
        truncate: int | None = 10,
        backend: str = "auto",
    ) -> None:
        sizes = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        memory = TopKMemory(top_k, every)
        cell_options = {"initialiser": initialiser, "forget_bias": forget_bias, "chrono": chrono}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)
