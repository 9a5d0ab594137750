"""A state that no layer could have returned is refused in one line before compiled code reads it."""

import copy
import io
import pickle
import random
import weakref

import pytest
import torch

import plait
from plait.errors import ConfigError, PlaitError, ShapeError
from plait.ops.slots import MemoryState

WINDOW, CAPACITY = 3, 2
BACKENDS = ("reference", "torch", "cpu")


def build(name="RelRNN", **options):
    return getattr(plait, name)(3, 8, **options)


def bounded(name="RelRNN", **options):
    return build(name, window=WINDOW, capacity=CAPACITY, **options)


def altered(state, layer=0, **changes):
    """The same state with fields of one layer's memory made by functions of what they were."""
    memory = list(state.memory)
    old = memory[layer]._asdict()
    memory[layer] = memory[layer]._replace(**{name: change(old[name]) for name, change in changes.items()})
    return state.replace(memory=tuple(memory))


AGES = "expected 0 <= age <= 1073741824, got in row 0 age"
STEPS = "expected -1 <= born < age"
WRONG = {
    "negative age": ({"age": lambda age: age * 0 - 1}, AGES),
    "lowest age": ({"age": lambda age: torch.full_like(age, -(2**63))}, AGES),
    "age beyond 32 bits": ({"age": lambda age: age + 2**32}, AGES),
    "born not yet": ({"born": lambda born: born + 100}, STEPS),
    "born below -1": ({"born": lambda born: born - 100}, STEPS),
    "turned ring": ({"born": lambda born: born.roll(1, 1)}, "step b in slot b mod 3"),
    "older ring": ({"age": lambda age: age + 1}, "step b in slot b mod 3"),
    "int32 age": ({"age": lambda age: age.int()}, "age: expected int64 .* got int32"),
    "int32 born": ({"born": lambda born: born.int()}, "born: expected int64 .* got int32"),
    "float born": ({"born": lambda born: born.float()}, "born: expected int64 .* got float32"),
    "integer slots": ({"slots": lambda slots: slots.long()}, "expected floating point"),
    "integer relevance": ({"relevance": lambda r: r.long(), "age": torch.clone}, "expected floating point"),
    "narrow slots": ({"slots": lambda slots: slots[:, :, 1:]}, "expected"),
    "fewer rows": ({"age": lambda age: age[1:]}, "expected"),
    "one slot less": ({"relevance": lambda relevance: relevance[:, 1:]}, "expected"),
    "another device": (
        {"born": lambda born: born.to("meta")},
        "born: expected int64 on cpu, got int64 on meta",
    ),
    "no batch": ({"born": lambda born: born[0]}, "expected 2 dimensions"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_state_is_refused_in_one_line(what, backend):
    changes, message = WRONG[what]
    for name in ("RelRNN", "RelLSTM", "UniRNN"):
        model = bounded(name, num_layers=2, backend=backend)
        _, state = model(torch.randn(9, 4, 3))
        for layer in (0, 1):
            with pytest.raises(ShapeError, match=message) as error:
                model(torch.randn(9, 4, 3), altered(state, layer, **changes))
            assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["MemRNN", "SAB", "LSTM", "GRU", "Transformer"])
def test_of_the_other_memories_too(name):
    model = build(name)
    _, state = model(torch.randn(9, 4, 3))
    for change in (lambda age: age * 0 - 1, lambda age: age.int(), lambda age: age[1:]):
        with pytest.raises(ShapeError):
            model(torch.randn(2, 4, 3), altered(state, age=change))


def test_what_is_written_to_is_looked_at_again():
    model, x = bounded(), torch.randn(9, 4, 3)
    for made in (lambda s: s, lambda s: s.detach(), lambda s: s.clone(), lambda s: s.rows(slice(0, 4))):
        state = made(model(x)[1])
        model(x, state)
        state.memory[0].age.fill_(-1)
        with pytest.raises(ShapeError, match="age"):
            model(x, state)


def test_derived_states_are_checked_again():
    model, x = bounded(), torch.randn(9, 4, 3)
    state = model(x)[1].detach()
    bad = altered(state, age=lambda age: age * 0 - 1)
    for same in (
        copy.deepcopy(bad),
        pickle.loads(pickle.dumps(bad)),
        bad.detach(),
        bad.clone(),
        bad.to("cpu"),
    ):
        with pytest.raises(ShapeError, match="age"):
            model(x, same)
    # one that was right elsewhere is not right here: as wide, with another window
    other = build(window=CAPACITY, capacity=WINDOW)
    with pytest.raises(ShapeError, match="slot b mod 2"):
        other(x, state)


def test_a_right_one_passes_however_it_came():
    model, x = bounded("RelLSTM"), torch.randn(9, 4, 3)
    state = model(x)[1].detach()
    expected = model(x, state)[0]
    by_hand = state.replace(memory=tuple(MemoryState(*(part.clone() for part in m)) for m in state.memory))
    for same in (copy.deepcopy(state), pickle.loads(pickle.dumps(state)), by_hand, state.to("cpu")):
        assert torch.equal(model(x, same)[0], expected)
    emptied = altered(state, born=lambda born: torch.full_like(born, -1))
    assert model(x, emptied)[0].shape == (9, 4, 8)


def test_a_nan_in_an_empty_slot_or_a_cleared_row_is_allowed():
    model, x = bounded(), torch.randn(9, 4, 3)
    state = altered(
        model(x[:2])[1], slots=lambda slots: slots.where((slots != 0).any(2, keepdim=True), torch.nan)
    )
    assert not model(x, state)[0].isnan().any()
    lost = state.replace(hidden=state.hidden * torch.nan)
    assert not model(x, lost, reset=torch.ones(9, 4, dtype=torch.bool))[0].isnan().any()


def test_values_are_looked_at_once(monkeypatch):
    from plait.ops import state_check

    looks = []
    look = state_check._check_values
    monkeypatch.setattr(state_check, "_check_values", lambda *given: (looks.append(1), look(*given)))
    model, state = bounded(num_layers=2), None
    for step in torch.randn(9, 4, 3).split(1):
        _, state = model(step, state)
        state = state.detach()
    model(torch.randn(5, 3), model(torch.randn(5, 3))[1])
    assert not looks
    foreign = pickle.loads(pickle.dumps(state))
    for _ in range(3):
        model(torch.randn(1, 4, 3), foreign)
    assert len(looks) == 2  # a layer each


def test_a_record_lives_and_dies_with_its_memory():
    model, state = bounded(), None
    with torch.no_grad():  # single steps leave keys too
        for step in torch.randn(9, 4, 3).split(1):
            _, state = model(step, state)
    (memory,) = state.memory
    gone = [weakref.ref(memory.age), weakref.ref(memory.validation.keys)]
    for other in (
        memory._replace(age=memory.age - 1),
        MemoryState(*memory),
        copy.copy(memory),
        copy.deepcopy(memory),
        pickle.loads(pickle.dumps(memory)),
    ):
        assert type(other) is MemoryState
        assert other.validation is None
    del memory, state, other, step
    assert [reference() for reference in gone] == [None, None]


def test_a_file_cannot_say_that_its_steps_were_checked():
    model, x = bounded(), torch.randn(9, 4, 3)
    state = model(x)[1].detach()

    class Crafted(MemoryState):
        def __reduce_ex__(self, protocol):
            return MemoryState, tuple(self), {"validation": tuple(state.memory[0].validation)}

    bad = Crafted(*altered(state, age=lambda age: age * 0 - 1).memory[0])
    file = io.BytesIO()
    torch.save(bad, file)
    for load in (lambda: pickle.loads(pickle.dumps(bad)), lambda: torch.load(file, weights_only=True)):
        file.seek(0)
        with pytest.raises(ShapeError, match="expected four tensors, got attributes too"):
            load()


def test_in_inference_mode_torch_counts_no_writes_and_all_else_holds():
    model, x = bounded(), torch.randn(9, 4, 3)
    with torch.inference_mode():
        _, state = model(x)
        _, state = model(x, state)
        with pytest.raises(ShapeError, match="age"):
            model(x, altered(state, age=lambda age: age * 0 - 1))
        state.memory[0].age.fill_(-7)  # nobody can tell; the compiled scan stays within its memory
        output, _ = model(x, state)
        model.layers[0].backend = "reference"
        torch.testing.assert_close(output, model(x, state)[0])


def test_a_compiled_call_checks_shapes_and_stays_in_bounds():
    torch._dynamo.reset()
    model, x = bounded(), torch.randn(9, 4, 3)
    state = model(x)[1].detach()
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        output, _ = compiled(x, altered(state, age=lambda age: age * 0 - 1))
        assert output.shape == (9, 4, 8)
        with pytest.raises(ShapeError, match="int64"):
            compiled(x, altered(state, age=lambda age: age.int()))


@pytest.mark.parametrize(
    "state",
    [
        plait.models.State(None, None, ()),
        plait.models.State(torch.zeros(1, 4, 8), None, ()),
        plait.models.State(torch.zeros(1, 4, 8), None, None),
        plait.models.State(torch.zeros(1, 4, 8), None, (None,)),
        plait.models.State(torch.zeros(1, 4, 8), 3, (MemoryState(1, 2, 3, 4),)),
        plait.models.State(torch.zeros(1, 4, 8), None, (MemoryState(*[torch.zeros(())] * 4),)),
        "s",
        {},
    ],
)
def test_objects_that_are_not_states_are_refused(state):
    with pytest.raises(ShapeError, match="state"):
        bounded()(torch.randn(9, 4, 3), state)


def test_reset_and_nudge_lie_where_the_input_lies():
    model, x = bounded(), torch.randn(9, 4, 3)
    with pytest.raises(ShapeError, match="reset: expected on cpu"):
        model(x, reset=torch.zeros(9, 4, dtype=torch.bool, device="meta"))
    with pytest.raises(ShapeError, match="nudge: expected on cpu"):
        model(x, nudge=[torch.zeros(9, 4, 8, device="meta")])


@pytest.mark.parametrize("options", [{"window": 2.5}, {"window": True}, {"capacity": 1.0}, {"window": "3"}])
def test_slots_are_counted_in_whole_numbers(options):
    with pytest.raises(ConfigError, match="expected a whole number"):
        build(**options)
    with pytest.raises(ConfigError, match="expected a whole number"):
        build("SAB", top_k=2.5)


def test_a_batch_of_no_rows():
    for name in ("SAB", "RelLSTM", "MemRNN", "Transformer"):
        model = build(name)
        output, state = model(torch.randn(5, 0, 3))
        assert output.shape == model(torch.randn(5, 0, 3), state)[0].shape == (5, 0, 8)


def fuzzed(rng, state):
    """One crafted state: steps, shapes and types that a file could hold."""

    def number(low, high):
        return rng.choice([rng.randint(low, high), -1, 0, 2**31, -(2**40), 2**62])

    def values(tensor, low=-3, high=30, wild=0.2):
        near = torch.randint(low, high, tensor.shape)
        return near if rng.random() > wild else torch.full_like(tensor, number(low, high))

    def bent(tensor):
        return rng.choice([tensor[1:], tensor.int(), tensor.double(), tensor[..., :0], tensor.unsqueeze(0)])

    changes = {}
    if rng.random() < 0.7:
        changes["age"] = values
    if rng.random() < 0.7:
        changes["born"] = lambda born: values(born, -1, 9)
    if rng.random() < 0.3:
        special = rng.choice([torch.nan, torch.inf, -torch.inf, 1e30, -1.0])
        changes["relevance"] = lambda relevance: torch.where(
            torch.rand_like(relevance) < 0.4, special, relevance
        )
    if rng.random() < 0.3:
        changes[rng.choice(["slots", "relevance", "born", "age"])] = bent
    return altered(state, **changes)


@pytest.mark.parametrize("name", ["RelRNN", "RelLSTM", "RelGRU", "UniLSTM", "MemLSTM"])
def test_crafted_states_give_an_error_or_the_references_numbers(name):
    """Seeded by the model's name; 120 states each, on every backend of a CPU."""
    rng = random.Random(name)
    torch.manual_seed(len(name))
    options = {} if name.startswith("Mem") else {"window": WINDOW, "capacity": CAPACITY}
    model = build(name, **options)
    state = model(torch.randn(9, 4, 3))[1].detach()
    x = torch.randn(6, 4, 3)
    passed = 0
    for _ in range(120):
        crafted = fuzzed(rng, state)
        found = []
        for backend in BACKENDS:
            model.layers[0].backend = backend
            try:
                output, end = model(x, crafted)
                found.append((output.detach(), end.memory[0].born, end.memory[0].age))
            except PlaitError as error:
                found.append(str(error))
        if isinstance(found[0], str):
            assert found == [found[0]] * len(BACKENDS)
            continue
        passed += 1
        for output, born, age in found[1:]:
            assert torch.equal(born, found[0][1])
            assert torch.equal(age, found[0][2])
            torch.testing.assert_close(output, found[0][0], equal_nan=True)
    assert 5 <= passed <= 115  # both kinds came
