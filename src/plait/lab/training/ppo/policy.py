"""Policy network: encoder, recurrent memory, actor and critic; and the description of its run as a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from plait.errors import CheckpointError, ConfigError, check_choice, check_int
from plait.estimates import check_weights
from plait.lab.own_code import is_own_name, name_of, name_of_factory
from plait.lab.runs.kinds import kind_of
from plait.lab.runs.reading import find_run, read_run
from plait.lab.training.factories import FactoryModel
from plait.lab.training.ppo.encoders import OwnEncoder, UniqueObservations, unique_observations
from plait.lab.training.ppo.families import Family, family_of, guess_family
from plait.lab.training.recipe import PPOConfig
from plait.lab.training.run_spec import RunSpec
from plait.lab.training.spec import ModelSpec
from plait.models import MODELS, Layer, Recurrent, State
from plait.models.options import check_model
from plait.ops.slots import MemoryState

__all__ = [
    "FORMAT",
    "POLICIES",
    "Policy",
    "PolicySpec",
    "build_policy",
    "describe_policy",
    "load_policy",
    "parse_policy",
    "policy_spec",
]

FORMAT = "plait policy 2"
POLICIES = ("none", *MODELS)
# As published: RelLSTM attends to its last five states and five relevant ones.
_PUBLISHED_MEMORY = {"window": 5, "capacity": 5}
_HIDDEN_SIZE = 64
_INITIAL_LOG_STD = -0.5  # initial value for actions between −1 and 1


class Policy(nn.Module):
    """Actor and critic on a recurrent layer: logits_t = W_a tanh(U_a h_t), V_t = w_v tanh(U_v h_t).

    h_t is the output of `recurrent` over encoded observations. The heads have a hidden layer because the
    right action can be an exclusive or of memory and observation (MemoryS7), which no linear layer computes.

    For continuous actions the logits are the means, followed by the log standard deviations, which are
    parameters that do not depend on the observation.

    Args:
        recurrent: any of the library's layers over `encoder.features` inputs; None for a policy without
            memory, whose h_t is a feed-forward layer.
        features: size of the encoder's output, for a policy without memory.
        family: family of environments; by default grid worlds.
    """

    def __init__(self, recurrent: Recurrent | None, features: int = 64, family: Family | None = None) -> None:
        super().__init__()
        self.family = family or family_of({"name": "minigrid", "backend": "minigrid"})
        self.actions = self.family.actions
        features = features if recurrent is None else recurrent.input_size
        hidden = features if recurrent is None else recurrent.hidden_size
        check_weights(2 * hidden**2 + (128 + 64) * features)
        self.encoder = self.family.encoder(features)
        # Values per step that an update keeps in memory.
        self.values_per_step: int = features + self.family.observation_size
        self.recurrent = recurrent
        self.feed_forward = (
            nn.Sequential(nn.Linear(features, hidden), nn.Tanh()) if recurrent is None else None
        )
        self.actor = _head(hidden, self.actions.num_outputs, 0.01)
        self.critic = _head(hidden, 1, 1.0)
        count = self.actions.num_log_stds
        self.log_std = nn.Parameter(torch.full((count,), _INITIAL_LOG_STD)) if count else None

    def forward(
        self, observation: Any, state: Any = None, *, reset: Tensor | None = None, **options: Any
    ) -> Any:
        """Return logits (T, B, actions), values (T, B) and the state, from an observation (T, B, …).

        `reset` (T, B) bool clears a row's state before that step; with `need_trace` the traces come last.
        """
        steps, envs = observation[0].shape[:2]
        flat = observation.map(lambda part: part.flatten(0, 1))
        is_unique = isinstance(flat, UniqueObservations)
        encoded = flat.encode(self.encoder) if is_unique else self.encoder(flat)
        encoded = encoded.unflatten(0, (steps, envs))
        if self.recurrent is None:
            assert self.feed_forward is not None
            hidden, rest = self.feed_forward(encoded), [None]
        else:
            hidden, *rest = self.recurrent(encoded, state, reset=reset, **options)
        logits = self.actor(hidden)
        if self.log_std is not None:
            logits = torch.cat([logits, self.log_std.expand_as(logits)], -1)
        return logits, self.critic(hidden).squeeze(-1), *rest

    @torch.no_grad()
    def predict(self, observation: Any, state: Any = None, *, greedy: bool = False) -> tuple[Any, Any]:
        """Return the action for one environment's observation, as the environment takes it, and the state.

        Args:
            observation: as the environment's `reset` and `step` return it.
            state: the state that the previous call returned; None at the start of an episode.
            greedy: take the most likely action instead of sampling, from torch's global random numbers.

        >>> policy = build_policy(policy_spec("CartPole-v1", hidden_size=8))
        >>> action, state = policy.predict([0.0, 0.0, 0.0, 0.0])
        >>> action, state = policy.predict([0.1, 0.0, 0.0, 0.0], state, greedy=True)
        >>> action in (0, 1)
        True
        """
        device = next(self.parameters()).device
        observed = self.family.observe(observation).map(lambda part: part.unsqueeze(0).to(device))
        logits, _, state = self(observed, state)
        outputs = logits[0].float().cpu()
        noise = None if greedy else self.actions.noise((1,), torch.default_generator)
        action = self.actions.mode(outputs) if noise is None else self.actions.sample(outputs, noise)
        return self.actions.to_env(action[0].tolist()), self.detach_state(state)

    def prepare(self, observation: Any, device: torch.device) -> Any:
        """Return an observation (T, B, …) prepared for the several passes of an update.

        Repeated observations are merged, except for a user's encoder, which may mix those of a batch.
        """
        if isinstance(self.encoder, OwnEncoder):
            return observation.map(lambda part: part.to(device))
        unique = unique_observations(observation, device)
        prepare = getattr(self.encoder, "prepare", None)
        return unique if prepare is None else UniqueObservations(unique.index, prepare(unique.rows))

    def detach_state(self, state: Any) -> Any:
        """Return the state after a rollout, detached and without empty slots of a growing memory.

        A full memory gains a slot per step; slots that a reset emptied in every row come first and would
        never be freed.
        """
        if self.recurrent is None or not isinstance(state, State):
            return None
        layers = cast(Iterable[Layer], self.recurrent.layers)
        memories = [
            memory if layer.initial_width else _without_empty_slots(memory)
            for layer, memory in zip(layers, state.memory, strict=True)
        ]
        return state.replace(memory=tuple(memories)).detach()


def _head(features: int, outputs: int, gain: float) -> nn.Sequential:
    head = nn.Sequential(nn.Linear(features, features), nn.Tanh(), nn.Linear(features, outputs))
    for index, scale in ((0, 2**0.5), (2, gain)):
        nn.init.orthogonal_(cast(Tensor, head[index].weight), scale)
        nn.init.zeros_(cast(Tensor, head[index].bias))
    return head


def _without_empty_slots(memory: MemoryState) -> MemoryState:
    """Return a memory without its first slots that are empty in every row."""
    occupied = (memory.born >= 0).any(0)
    first = int(occupied.long().argmax()) if bool(occupied.any()) else len(occupied)
    slots, relevance, born, age = memory
    return MemoryState(slots[:, first:], relevance[:, first:], born[:, first:], age)


@dataclass(frozen=True)
class PolicySpec(RunSpec):
    """The description of a policy's run.

    Args:
        family: the family of environments, with the names of the training and the test environment.
        model: the memory; the name none stands for a policy without one.
        ppo: the hyperparameters, including the seed.
    """

    family: Family
    model: ModelSpec | FactoryModel
    ppo: PPOConfig

    @property
    def format(self) -> str:
        return FORMAT

    def parts(self) -> dict[str, dict[str, Any]]:
        return {"task": self.family.task, "model": self.model.to_json(), "recipe": self.ppo.values()}

    def with_seed(self, seed: int) -> PolicySpec:
        return replace(self, ppo=self.ppo.changed(seed=seed))


def policy_spec(
    env: str | Callable[..., Any],
    model: str | Callable[..., Any] = "rellstm",
    ppo: PPOConfig | None = None,
    *,
    family: str | None = None,
    test_env: str | Callable[..., Any] | None = None,
    backend: str | None = None,
    time_limit: int | None = None,
    encoder: str | Callable[..., Any] | None = None,
    hidden_size: int = _HIDDEN_SIZE,
    **options: Any,
) -> PolicySpec:
    """Return the description of a policy's run; further options are those of the model's builder.

    Args:
        env: the environment: a name of the family, or, with the family gym, a function that makes one, such
            as a lambda. If the function can be imported, the run can be resumed anywhere, else by passing it
            again.
        model: the policy's memory: the name of a model, a function that builds one or its name `module:name`,
            or none.
        ppo: hyperparameters of PPO, including the seed.
        family: minigrid, gym or popgym; by default gym for a function, else the one that has this name.
        test_env: an environment to test the policy in, once, at the end.
        backend: for minigrid: minigrid (Farama's, the default), or envpool.
        time_limit: for gym: steps after which an episode is truncated, instead of the environment's own
            limit.
        encoder: for gym and popgym: a function (space, features), or its name `module:function`, that returns
            a module which encodes observations, instead of the one chosen by the space.
        hidden_size: features of the encoder and of the model.

    >>> policy_spec("DoorKey-5x5", "relgru").model.options
    {'hidden_size': 64, 'window': 5, 'capacity': 5}
    >>> policy_spec("CartPole", "gru", family="gym").family.task
    {'name': 'gym', 'env': 'CartPole-v1', 'test_env': None}
    """
    model = name_of(model)
    if not is_own_name(model):
        check_choice(model, POLICIES, "model")
    published = _PUBLISHED_MEMORY if model.startswith("rel") else {}
    changes = {name: value for name, value in options.items() if value is not None}
    env, test_env = _name_of_env(env), test_env and _name_of_env(test_env)
    family = family or ("gym" if is_own_name(env) else guess_family(env))
    backend = backend or ("minigrid" if family == "minigrid" else None)
    extras = {"backend": backend, "time_limit": time_limit, "encoder": encoder and name_of(encoder)}
    task: dict[str, Any] = {"name": family, "env": env, "test_env": test_env}
    task |= {name: value for name, value in extras.items() if value is not None}
    if _has_learned_relevance(changes):
        changes.setdefault("noise", 0.0)
    parts = {"name": model, "hidden_size": hidden_size, **published, **changes}
    return parse_policy({"task": task, "model": parts, "recipe": (ppo or PPOConfig()).values()})


def _name_of_env(env: Any) -> str:
    if callable(getattr(env, "reset", None)) and not isinstance(env, type):
        raise ConfigError(
            f"env: expected a function that makes an environment, since several are stepped at once, got "
            f"{type(env).__name__}; pass one, such as lambda: {type(env).__name__}(…)"
        )
    return name_of_factory(env)


def describe_policy(
    env: str | Callable[..., Any], model: str = "rellstm", ppo: PPOConfig | None = None, **options: Any
) -> dict[str, Any]:
    """Return the description of a policy's run as plain data, from the arguments of `policy_spec`.

    >>> describe_policy("DoorKey-5x5", "relgru")["model"]
    {'name': 'relgru', 'hidden_size': 64, 'window': 5, 'capacity': 5}
    """
    return policy_spec(env, model, ppo, **options).to_json()


def _has_learned_relevance(model: Mapping[str, Any]) -> bool:
    """Return whether the memory's relevance is learned, which is the default of a Transformer's."""
    default = "learned" if model.get("memory") == "relevancy" else None
    return bool(model.get("relevance", default) == "learned")


def parse_policy(values: PolicySpec | dict[str, Any]) -> PolicySpec:
    """Validate a description as plain data, with the full names of its environments.

    One that was parsed before is returned unchanged.
    """
    if isinstance(values, PolicySpec):
        return values
    name = values.get("format", FORMAT)
    if name != FORMAT:
        raise ConfigError(f"format: expected {FORMAT!r}, got {name!r}; it was not written by this version")
    family, model = family_of(family_of(values["task"]).parse_task()), dict(values["model"])
    ppo = PPOConfig().changed(**values["recipe"]).check()
    if is_own_name(model["name"]):
        return PolicySpec(family, FactoryModel.parse(model), ppo)
    if check_choice(model["name"], POLICIES, "model") == "none":
        for option in model:
            check_choice(option, ("name", "hidden_size"), "option of none")
        check_int(1, hidden_size=model["hidden_size"])
    else:
        check_model(model)
        if model.get("bidirectional"):
            raise ConfigError("bidirectional: expected False for a policy, which acts step by step, got True")
        # An update that replays a rollout must keep the same states, or its probability ratios are not 1.
        if _has_learned_relevance(model) and model.get("noise") != 0:
            raise ConfigError(
                f"noise: expected 0 for a policy, whose actions are sampled, got {model.get('noise')}"
            )
    return PolicySpec(family, ModelSpec(model.pop("name"), model), ppo)


def build_policy(description: PolicySpec | dict[str, Any], layer_backend: str = "auto") -> Policy:
    """Build the policy as it is before its first update; weights are drawn from the seed of the spec.

    >>> policy = build_policy(policy_spec("DoorKey-5x5", "none", hidden_size=16))
    >>> policy.actor[-1].weight.shape
    torch.Size([7, 16])
    """
    spec = parse_policy(description)
    hidden = spec.model.options.get("hidden_size", _HIDDEN_SIZE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.ppo.seed)
        recurrent = None if spec.model.name == "none" else spec.model.build(hidden, layer_backend)
        if not isinstance(recurrent, Recurrent | None):
            raise ConfigError(
                f"{spec.model.name}: expected a plait.Recurrent for a policy, whose episodes reset rows, got "
                f"{type(recurrent).__name__}"
            )
        return Policy(recurrent, hidden, spec.family)


def load_policy(run: str | Path, *, device: str = "cpu", out: Path | str = "runs") -> Policy:
    """Load the policy that a run trained, in `eval` mode."""
    from plait.lab.training.session import load

    folder = find_run(run, out)
    if kind_of(read_run(folder).description).format != FORMAT:
        raise CheckpointError(
            f"{folder} holds no policy; expected a run of plait train minigrid, gym or popgym"
        )
    return cast(Policy, load(folder, device=device))
