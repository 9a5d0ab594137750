"""Named models with relevancy screening: `RelRNN`, `RelLSTM` and `RelGRU`."""

from __future__ import annotations

import torch

from plait.cells import ElmanCell, GRUCell, LSTMCell
from plait.memory import RelevancyMemory
from plait.models.named import NamedModel
from plait.models.self_attentive import Mix

__all__ = ["RelGRU", "RelLSTM", "RelRNN"]


class RelRNN(NamedModel):
    """An Elman network with relevancy screening: attention over `window` + `capacity` states.

    Use it where a few inputs matter many steps later. With `relevance="earned"` it keeps what comes
    first; where what matters may come late, use `RelLSTM` with `relevance="learned"`. Where all states
    fit, use `MemRNN`.

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
        relevance: criterion by which states are kept: "earned", the attention received (as published), or
            "learned", a score that reading trains.
        noise: scale of the Gumbel noise on a learned relevance while training; None for 0.3.
        usage: weight of training a learned relevance by how much reading matters to the loss; None for 1.
        grad_limit: clip the elements of dL/ds_t to this multiple of the largest incoming one; None: no limit.
        nonlinearity: nonlinearity of the Elman cell: tanh, relu, modrelu, identity.
        initialiser: initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.
        truncate: cut the recurrent gradient every `truncate` steps; None for never.
        backend: "auto", or one of reference, torch, cpu, cluster, triton, which never falls back to another.

    >>> output, state = RelRNN(10, 32, window=5, capacity=5)(torch.randn(20, 4, 10))
    >>> output.shape, state.memory[0].slots.shape
    (torch.Size([20, 4, 32]), torch.Size([4, 10, 32]))
    """

    cell_type = ElmanCell
    memory_type = RelevancyMemory

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
        relevance: str = "earned",
        noise: float | None = None,
        usage: float | None = None,
        grad_limit: float | None = None,
        nonlinearity: str = "tanh",
        initialiser: str = "henaff",
        mix: Mix = 0.5,
        truncate: int | None = None,
        backend: str = "auto",
    ) -> None:
        sizes = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        memory = RelevancyMemory(window, capacity, relevance, noise, usage, grad_limit)
        cell_options = {"initialiser": initialiser, "nonlinearity": nonlinearity}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)


class RelLSTM(NamedModel):
    """An LSTM with relevancy screening: attention over `window` + `capacity` states.

    Use it in place of `torch.nn.LSTM` where a few inputs matter many steps later; a step costs the same
    at any length of the sequence. Where what matters may come late, pass `relevance="learned"`,
    `forget_bias=1.0` and `grad_limit=1.0`; where it comes first, `RelRNN` learns as fast. Where all
    states fit, use `MemLSTM`.

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
        relevance: criterion by which states are kept: "earned", the attention received (as published), or
            "learned", a score that reading trains.
        noise: scale of the Gumbel noise on a learned relevance while training; None for 0.3.
        usage: weight of training a learned relevance by how much reading matters to the loss; None for 1.
        grad_limit: clip the elements of dL/ds_t to this multiple of the largest incoming one; None: no limit.
        forget_bias: initial bias of the forget gate; 1 is common, None for torch's initialisation.
        chrono: draw forget-gate biases for lifetimes of up to this many steps; not with
            forget_bias.
        initialiser: initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.
        truncate: cut the recurrent gradient every `truncate` steps; None for never.
        backend: "auto", or one of reference, torch, cpu, cluster, triton, which never falls back to another.

    >>> output, state = RelLSTM(10, 32, window=5, capacity=5)(torch.randn(20, 4, 10))
    >>> output.shape, state.memory[0].slots.shape
    (torch.Size([20, 4, 32]), torch.Size([4, 10, 32]))
    """

    cell_type = LSTMCell
    memory_type = RelevancyMemory

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
        relevance: str = "earned",
        noise: float | None = None,
        usage: float | None = None,
        grad_limit: float | None = None,
        forget_bias: float | None = None,
        chrono: int | None = None,
        initialiser: str = "xavier",
        mix: Mix = 0.5,
        truncate: int | None = None,
        backend: str = "auto",
    ) -> None:
        sizes = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        memory = RelevancyMemory(window, capacity, relevance, noise, usage, grad_limit)
        cell_options = {"initialiser": initialiser, "forget_bias": forget_bias, "chrono": chrono}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)


class RelGRU(NamedModel):
    """A GRU with relevancy screening: attention over `window` + `capacity` states.

    Use it in place of `torch.nn.GRU`, as `RelLSTM` in place of an LSTM; it has no cell state.

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
        relevance: criterion by which states are kept: "earned", the attention received (as published), or
            "learned", a score that reading trains.
        noise: scale of the Gumbel noise on a learned relevance while training; None for 0.3.
        usage: weight of training a learned relevance by how much reading matters to the loss; None for 1.
        grad_limit: clip the elements of dL/ds_t to this multiple of the largest incoming one; None: no limit.
        forget_bias: initial bias of the forget gate; 1 is common, None for torch's initialisation.
        chrono: draw forget-gate biases for lifetimes of up to this many steps; not with
            forget_bias.
        initialiser: initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.
        truncate: cut the recurrent gradient every `truncate` steps; None for never.
        backend: "auto", or one of reference, torch, cpu, cluster, triton, which never falls back to another.
    """

    cell_type = GRUCell
    memory_type = RelevancyMemory

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
        relevance: str = "earned",
        noise: float | None = None,
        usage: float | None = None,
        grad_limit: float | None = None,
        forget_bias: float | None = None,
        chrono: int | None = None,
        initialiser: str = "xavier",
        mix: Mix = 0.5,
        truncate: int | None = None,
        backend: str = "auto",
    ) -> None:
        sizes = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size
        memory = RelevancyMemory(window, capacity, relevance, noise, usage, grad_limit)
        cell_options = {"initialiser": initialiser, "forget_bias": forget_bias, "chrono": chrono}
        super().__init__(*sizes, device, dtype, memory, cell_options, mix, truncate, backend)
