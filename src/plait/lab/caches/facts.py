"""Facts in training documents: stated in prose, asked for later, with the answer in the text.

Prose alone rarely reads a state again after a thousand tokens, so scores trained on it have no reason to keep
what a question may need. Formats and wordings differ from those of `plait.lab.caches.needles`, which
measures.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from typing import Any, NamedTuple

from plait.errors import ConfigError
from plait.lab.caches.hiding import SentenceEnds, put_into
from plait.lab.caches.texts import encode

__all__ = ["FACTS", "FactWriter", "Written"]

_MOST = 8  # facts of a document
_SHARE = 3  # facts and questions take at most 1 / _SHARE of a document
_AT_THE_END = 0.6  # share of questions at the end of the document; the others are within it
_UNASKED = 0.2  # share of facts without a question, so that scores cannot know in advance which matter
_TRIES = 4  # attempts to draw a fact that is new and fits
_FIRST = (
    "Alice",
    "Boris",
    "Carmen",
    "Dmitri",
    "Elena",
    "Farid",
    "Greta",
    "Hiro",
    "Ingrid",
    "Jorge",
    "Katya",
    "Liam",
    "Mariam",
    "Nadia",
    "Oscar",
    "Priya",
    "Quentin",
    "Rosa",
    "Stefan",
    "Tomoko",
    "Umar",
    "Vera",
)
_LAST = (
    "Abbott",
    "Becker",
    "Castillo",
    "Dupont",
    "Eriksen",
    "Fischer",
    "Grant",
    "Haddad",
    "Ivanov",
    "Jensen",
    "Kowalski",
    "Lopez",
    "Moreau",
    "Novak",
    "Okafor",
    "Petrov",
    "Rossi",
    "Singh",
    "Tanaka",
    "Weber",
)
_CITIES = (
    "Lisbon",
    "Oslo",
    "Nairobi",
    "Toronto",
    "Vienna",
    "Lima",
    "Prague",
    "Dublin",
    "Cairo",
    "Seoul",
    "Bogota",
    "Helsinki",
    "Jakarta",
    "Athens",
    "Krakow",
    "Santiago",
    "Mumbai",
    "Geneva",
    "Havana",
    "Tunis",
)
_THINGS = (
    "lamps",
    "bricks",
    "violins",
    "tractors",
    "blankets",
    "microscopes",
    "umbrellas",
    "bicycles",
    "carpets",
    "radios",
    "helmets",
    "clocks",
    "barrels",
    "mirrors",
    "pianos",
    "tents",
)
_PLACES = (
    "library",
    "north gate",
    "archive",
    "server room",
    "greenhouse",
    "laboratory",
    "boat house",
    "museum",
    "workshop",
    "observatory",
    "parking garage",
    "storage unit",
    "clinic",
    "chapel",
)
_WORDS = (
    "copper",
    "meadow",
    "thunder",
    "velvet",
    "glacier",
    "pepper",
    "sailor",
    "marble",
    "canyon",
    "whisper",
    "lantern",
    "harvest",
    "cobalt",
    "ember",
    "walnut",
    "tunnel",
    "parrot",
    "crystal",
    "monsoon",
    "saffron",
)
_JOBS = (
    "baker",
    "surgeon",
    "carpenter",
    "pilot",
    "translator",
    "plumber",
    "geologist",
    "tailor",
    "violinist",
    "judge",
    "farmer",
    "chemist",
    "librarian",
    "electrician",
)
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_SETTINGS = (
    "timeout",
    "retries",
    "max_depth",
    "buffer_size",
    "log_level",
    "port",
    "threshold",
    "cache_dir",
    "batch_limit",
    "interval",
    "priority",
    "region",
)


class Written(NamedTuple):
    """A document of training: its tokens, and which of them are answers."""

    tokens: list[int]
    answers: list[bool]


class _Format(NamedTuple):
    """Wordings of one kind of fact, with {s} for its subject and {v} for its value.

    `endings` are sentences that the value completes, `questions` have it as their answer.
    """

    statements: tuple[str, ...]
    endings: tuple[str, ...]
    questions: tuple[str, ...]
    subject: Callable[[random.Random], str]
    value: Callable[[random.Random], str]


def _digits(rng: random.Random, count: int) -> str:
    return str(rng.randrange(10 ** (count - 1), 10**count))


def _letters(rng: random.Random, count: int) -> str:
    return "".join(rng.choices(string.ascii_uppercase, k=count))


def _person(rng: random.Random) -> str:
    return f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"


def _date(rng: random.Random) -> str:
    return f"{rng.randint(1, 28)} {rng.choice(_MONTHS)} {rng.randint(1900, 2030)}"


def _setting(rng: random.Random) -> str:
    return f"{rng.choice(_WORDS)}_{rng.choice(_SETTINGS)}"


def _setting_value(rng: random.Random) -> str:
    return rng.choice((_digits(rng, 3), _digits(rng, 4), rng.choice(_WORDS), f"0.{_digits(rng, 2)}"))


# Name -> wordings. None has a bare five-digit number, which is the format of `needles`.
FACTS: dict[str, _Format] = {
    "phone": _Format(
        ("You can reach {s} at {v}.", "{s} can be called under {v}.", "Call {s} on {v} for details."),
        ("The telephone line of {s} is", "{s} can be reached at"),
        ("What is the telephone line of {s}?", "Which number reaches {s}?"),
        _person,
        lambda rng: f"555-{_digits(rng, 4)}",
    ),
    "code": _Format(
        ("The access code for the {s} is {v}.", "To enter the {s}, type {v}.", "{v} opens the {s}."),
        ("The code that opens the {s} is", "To enter the {s}, type"),
        ("What is the access code for the {s}?", "Which code opens the {s}?"),
        lambda rng: rng.choice(_PLACES),
        lambda rng: f"{_letters(rng, 2)}-{_digits(rng, 4)}",
    ),
    "setting": _Format(
        ("{s} = {v}", "{s}={v}", "Set {s} = {v} in the file."),
        ("{s} =", "The configuration has {s} ="),
        ("To which value is {s} set?", "Which value has {s}?"),
        _setting,
        _setting_value,
    ),
    "password": _Format(
        ("The password of {s} is {v}.", "{s} logs in with the words {v}."),
        ("The password of {s} is", "{s} logs in with the words"),
        ("With which password does {s} log in?", "What is the password of {s}?"),
        _person,
        lambda rng: " ".join(rng.sample(_WORDS, 3)),
    ),
    "birth": _Format(
        ("{s} was born in {v}.", "The birthplace of {s} is {v}.", "In {v}, {s} was born."),
        ("{s} was born in", "The birthplace of {s} is"),
        ("Where was {s} born?", "In which city was {s} born?"),
        _person,
        lambda rng: rng.choice(_CITIES),
    ),
    "date": _Format(
        ("The {s} reopens on {v}.", "On {v} the {s} will reopen.", "The reopening of the {s}: {v}."),
        ("The {s} reopens on", "The date on which the {s} reopens is"),
        ("When does the {s} reopen?", "On which date does the {s} reopen?"),
        lambda rng: f"{rng.choice(_PLACES)} in {rng.choice(_CITIES)}",
        _date,
    ),
    "quantity": _Format(
        ("The warehouse in {s} holds {v}.", "There are {v} in the warehouse in {s}."),
        ("The warehouse in {s} holds", "What lies in the warehouse in {s} is"),
        ("What does the warehouse in {s} hold?", "What is stored in {s}?"),
        lambda rng: rng.choice(_CITIES),
        lambda rng: f"{_digits(rng, rng.choice((2, 3, 4)))} {rng.choice(_THINGS)}",
    ),
    "job": _Format(
        ("{s} works as a {v}.", "By profession, {s} is a {v}.", "{s}, the {v}, arrived late."),
        ("{s} works as a", "The profession of {s} is"),
        ("What is the profession of {s}?", "As what does {s} work?"),
        _person,
        lambda rng: f"{rng.choice(_JOBS)} in {rng.choice(_CITIES)}",
    ),
    "price": _Format(
        ("A set of {s} costs {v} dollars.", "For {v} dollars one gets a set of {s}."),
        ("A set of {s} costs", "The price of a set of {s} in dollars is"),
        ("How many dollars does a set of {s} cost?", "What is the price of a set of {s}?"),
        lambda rng: f"{rng.choice(_WORDS)} {rng.choice(_THINGS)}",
        lambda rng: f"{_digits(rng, rng.choice((2, 3)))}.{rng.randint(0, 99):02d}",
    ),
    "order": _Format(
        ("Order {s} was shipped to {v}.", "The goods of order {s} went to {v}."),
        ("Order {s} was shipped to", "The goods of order {s} went to"),
        ("Where was order {s} shipped?", "Who received order {s}?"),
        lambda rng: f"{_letters(rng, 1)}{_digits(rng, 3)}",
        lambda rng: f"{_person(rng)} in {rng.choice(_CITIES)}",
    ),
    "constant": _Format(
        ("#define {s} {v}", "const int {s} = {v};", "The constant {s} equals {v}."),
        ("The constant {s} equals", "The value of {s} is"),
        ("Which value does {s} have?", "What is {s}?"),
        lambda rng: f"{rng.choice(_WORDS)}_{rng.choice(_THINGS)}".upper(),
        lambda rng: _digits(rng, rng.choice((3, 4, 6, 7))),
    ),
    "serial": _Format(
        ('"{s}": "{v}"', "The label of the {s} reads {v}.", "{s}, serial {v}."),
        ("The label of the {s} reads", "The {s} has the serial"),
        ("Which serial does the {s} have?", "What does the label of the {s} read?"),
        lambda rng: f"{rng.choice(_WORDS)} {rng.choice(_THINGS)[:-1]}",
        lambda rng: f"{_digits(rng, 3)}{_letters(rng, 2)}{_digits(rng, 3)}",
    ),
}
_ENDINGS = ("{}", "As stated above, {}", "According to the text, {}", "Recall: {}", "To repeat: {}")
_QUESTIONS = ("Question: {}\nAnswer:", "Q: {}\nA:", "{} It is", "{}\n")


class FactWriter:
    """Writer of facts, and of questions about some of them, into documents.

    Args:
        tokenizer: the model's.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.ends = tokenizer, SentenceEnds(tokenizer)

    def write(self, prose: list[int] | tuple[int, ...], rng: random.Random) -> Written:
        """Return a document as long as the prose, whose end makes room for facts and questions.

        Raises:
            ConfigError: if the prose is too short for one fact.
        """
        room = len(prose) // _SHARE
        parts: list[tuple[float, list[int], int]] = []  # depth, tokens, answer's tokens at their end
        subjects: set[str] = set()
        wanted = rng.randint(1, _MOST)
        for _ in range(_TRIES * wanted):
            subject, new = self._fact(rng)
            size = sum(len(tokens) for _, tokens, _ in new)
            if subject not in subjects and size <= room and len(subjects) < wanted:
                subjects.add(subject)
                parts += new
                room -= size
        if not parts:
            raise ConfigError(
                f"facts: expected documents long enough for one, got {len(prose)} tokens; take a larger "
                "--context, or --facts 0"
            )
        parts.sort(key=lambda part: part[0])
        hay = list(prose[: len(prose) - sum(len(tokens) for _, tokens, _ in parts)])
        inside = [part for part in parts if part[0] < 1]
        depths = [depth for depth, _, _ in inside]
        text, begins = put_into(hay, [tokens for _, tokens, _ in inside], depths, self.ends(hay))
        marks = [
            (begin + len(tokens), count) for begin, (_, tokens, count) in zip(begins, inside, strict=True)
        ]
        for _, tokens, count in parts[len(inside) :]:
            text += tokens
            marks.append((len(text), count))
        answers = [False] * len(text)
        for end, count in marks:
            answers[end - count : end] = [True] * count
        return Written(text, answers)

    def _fact(self, rng: random.Random) -> tuple[str, list[tuple[float, list[int], int]]]:
        """Return a subject, a statement about it, and mostly a question; depth 1 is the document's end."""
        wording = FACTS[rng.choice(sorted(FACTS))]
        subject, value = wording.subject(rng), wording.value(rng)
        depth = rng.uniform(0.0, 0.95)
        statement = rng.choice(wording.statements).format(s=subject, v=value)
        parts = [(depth, self._encode(f" {statement}"), 0)]
        if rng.random() < _UNASKED:
            return subject, parts
        if rng.random() < 0.5:
            question = rng.choice(_ENDINGS).format(rng.choice(wording.endings).format(s=subject))
        else:
            question = rng.choice(_QUESTIONS).format(rng.choice(wording.questions).format(s=subject))
        question_depth = 1.0 if rng.random() < _AT_THE_END else rng.uniform(depth, 1.0)
        answer = self._encode(f" {value}")
        tokens = self._encode(f"\n\n{question}") + answer
        return subject, [*parts, (question_depth, tokens, len(answer))]

    def _encode(self, text: str) -> list[int]:
        return encode(self.tokenizer, text)
