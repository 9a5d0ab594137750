"""Texts as documents of tokens, needles hidden in them, and Debian's packages as texts."""

import gzip
import shutil
import subprocess

import pytest

from plait.errors import ConfigError, DataError, UnknownNameError
from plait.lab.caches import debian
from plait.lab.caches.needles import NEEDLES, hide, is_right
from plait.lab.caches.texts import Document, documents, encode, opening, part_of, read_text
from tests.lab.conftest import prose, tiny_tokenizer


def test_documents_are_the_text_cut_into_equal_pieces(lm, texts):
    pieces = documents(texts, lm.tokenizer, 100)
    tokens = encode(lm.tokenizer, texts[0].read_text())
    first = [piece for piece in pieces if piece.source == "long.txt"]
    assert {len(piece.tokens) for piece in pieces} == {100}
    assert [token for piece in first for token in piece.tokens] == tokens[: len(tokens) // 100 * 100]
    assert [piece.start for piece in first] == list(range(0, len(tokens) - 99, 100))
    assert documents(texts, lm.tokenizer, 100, most=1) == [first[0], pieces[len(first)]]


def test_documents_begin_with_the_special_tokens_of_the_model(texts):
    tokenizer = tiny_tokenizer(bos_token="<begin>")
    assert opening(tokenizer) == [1]
    assert opening(tiny_tokenizer()) == []
    pieces = documents(texts[:1], tokenizer, 50)
    assert {(piece.tokens[0], len(piece.tokens)) for piece in pieces} == {(1, 50)}
    assert [piece.start for piece in pieces[:3]] == [0, 49, 98]


def test_a_compressed_text_is_the_same(tmp_path, lm, texts):
    path = tmp_path / "long.txt.gz"
    path.write_bytes(gzip.compress(texts[0].read_bytes()))
    assert read_text(path) == read_text(texts[0])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("latin.txt", "é".encode("latin-1") * 9, "expected UTF-8 text"),
        ("broken.gz", b"\x1f\x8bno", "cannot be read"),
        ("cut.gz", gzip.compress(bytes(range(256)) * 50, mtime=0)[:60], "cannot be read"),
        ("short.txt", b"Few words.", "expected a file of at least 100 tokens, the longest of 1 has"),
    ],
)
def test_a_text_that_cannot_be_used_says_why(tmp_path, lm, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        documents([path], lm.tokenizer, 100)
    with pytest.raises(DataError, match="cannot be read"):
        read_text(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="got one twice"):
        documents([path, path], lm.tokenizer, 100)


def pieces_of(**counts):
    return [Document(name, i, (0,)) for name, count in counts.items() for i in range(count)]


@pytest.mark.parametrize("counts", [{"a": 20}, {"a": 5, "b": 9, "c": 3, "d": 20}, {"a": 1, "b": 1}])
def test_the_held_out_part_shares_nothing_with_the_rest(counts):
    pieces = pieces_of(**counts)
    train, held_out = part_of(pieces, "train"), part_of(pieces, "held-out")
    assert sorted(map(str, train + held_out)) == sorted(map(str, pieces))
    assert train
    assert held_out
    assert part_of(pieces, "all") == pieces
    if len(counts) > 1:  # files as a whole, whatever their order
        assert not {piece.source for piece in train} & {piece.source for piece in held_out}
        assert sorted(map(str, part_of(pieces[::-1], "held-out"))) == sorted(map(str, held_out))
    else:
        assert held_out == pieces[-2:]


def test_one_document_cannot_be_divided():
    with pytest.raises(DataError, match="expected at least 2 documents"):
        part_of(pieces_of(a=1), "train")


# Needles


@pytest.mark.parametrize("kind", NEEDLES)
def test_a_needle_lies_in_prose_and_can_be_answered_from_it(lm, texts, kind):
    prose_piece = documents(texts[:1], lm.tokenizer, 600)[0]
    answers = set()
    for number in range(6):
        needle = hide(kind, number, 3, 600, prose_piece, lm.tokenizer)
        assert needle == hide(kind, number, 3, 600, prose_piece, lm.tokenizer)
        assert len(needle.prompt) == 600
        text = lm.tokenizer.decode(needle.prompt)
        body, _, question = text.rpartition("\n\n")
        assert needle.answer in body
        assert needle.answer not in question
        assert resolve(body, question) == needle.answer
        place = text.index(needle.answer) / len(text)
        assert min(abs(place - depth) for depth in needle.depths) < 0.1
        answers.add(needle.answer)
    assert len(answers) == 6
    assert hide(kind, 0, 4, 600, prose_piece, lm.tokenizer) != hide(
        kind, 0, 3, 600, prose_piece, lm.tokenizer
    )


def resolve(body, question):
    """Answer a question as a careful reader does, from the sentences of the text alone."""
    sentences = [part.strip() for part in body.replace(".", ".\n").split("\n")]
    facts = {}
    for sentence in sentences:
        words = sentence.rstrip(".").split()
        if sentence.startswith("The magic number of the"):
            facts[words[5]] = words[-1]
        elif sentence.startswith("VAR"):
            facts[words[1]] = facts[words[-1]] if words[-2] == "VAR" else words[-1]
    return next(facts[word] for word in reversed(question.split()) if word in facts)


def test_a_prompt_without_room_for_prose_is_refused(lm, texts):
    piece = documents(texts[:1], lm.tokenizer, 600)[0]
    with pytest.raises(DataError, match="take a larger --needle-context"):
        hide("eight", 0, 0, 200, piece, lm.tokenizer)
    with pytest.raises(UnknownNameError, match="unknown kind of needle 'for'"):
        hide("for", 0, 0, 600, piece, lm.tokenizer)


@pytest.mark.parametrize(
    ("text", "right"),
    [(" 48213.", True), ("48213 or 99999", True), (" 482130", False), (" 99999, 48213", False), ("", False)],
)
def test_an_answer_is_the_first_number(text, right):
    assert is_right(text, "48213") is right


# Debian's packages


def make_package(folder, name, files, depends=""):
    root = folder / f"root-{name}"
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    control = root / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    lines = [f"Package: {name}", "Version: 1.0-1", "Architecture: all", "Maintainer: Nobody <no@example.org>"]
    lines += [f"Depends: {depends}"] if depends else []
    control.write_text("\n".join([*lines, "Description: texts", ""]))
    archive = folder / f"{name}_1.0-1_all.deb"
    subprocess.run(["dpkg-deb", "--build", str(root), str(archive)], check=True, capture_output=True)
    return archive


needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb, of Debian")


@needs_dpkg
def test_texts_of_a_package_come_without_tags_and_with_their_copyright(tmp_path):
    page = f"<html><head><title>T</title></head><body><p>{prose(600)}</p><script>no()</script></body></html>"
    archive = make_package(
        tmp_path,
        "book",
        {
            "usr/share/doc/book/copyright": b"Files: *\nLicense: GPL-2\n",
            "usr/share/doc/book/changelog.gz": gzip.compress(b"x" * 5000),
            "usr/share/doc/book/html/one.html": page.encode(),
            "usr/share/doc/book/html/two.html.gz": gzip.compress(page.encode()),
            "usr/share/doc/book/short.html": b"<p>short</p>",
            "usr/share/doc/book/other.txt": b"a text " * 300,
        },
    )
    package = debian.unpack(archive, tmp_path / "texts", "GPL-2")
    assert [path.name for path in package.files] == ["book-one.txt", "book-two.txt"]
    assert package.files[0].read_text().strip() == prose(600)
    assert (package.name, package.version, package.licence) == ("book", "1.0-1", "GPL-2")
    assert (tmp_path / "texts" / "COPYRIGHT").read_bytes().startswith(b"Files: *")


@needs_dpkg
def test_a_package_that_only_depends_on_another_leads_to_it(tmp_path, monkeypatch):
    copyright = {"usr/share/doc/python3-doc/copyright": b"PSF"}
    empty = make_package(tmp_path, "python3-doc", copyright, depends="python3.11-doc (= 1), other")
    full = make_package(tmp_path, "python3.11-doc", {"usr/share/doc/p/a.rst.txt": prose(600).encode()})
    archives = {"python3-doc": empty, "python3.11-doc": full}
    monkeypatch.setattr(debian, "_download", lambda name, folder: archives[name])
    (package,) = debian.fetch(["python3-doc"], tmp_path / "texts")
    assert package.name == "python3.11-doc"
    assert [path.parent.name for path in package.files] == ["python3-doc"]
    with pytest.raises(UnknownNameError, match="unknown package 'emacs'"):
        debian.fetch(["emacs"], tmp_path)
    with pytest.raises(DataError, match="dpkg-deb"):
        debian.unpack(tmp_path / "python3-doc", tmp_path / "t", "")
