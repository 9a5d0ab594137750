"""Train a character model on a text, then let it continue a prompt, one character at a time.

python examples/generate_text.py book.txt "to be"
python examples/generate_text.py --smoke
"""

import sys
import tempfile
from pathlib import Path

import plait
from plait.lab.training.generation import continue_text

SMOKE = "--smoke" in sys.argv
given = [word for word in sys.argv[1:] if not word.startswith("-")]
with tempfile.TemporaryDirectory() as folder:
    book = Path(given[0]) if given else Path(folder) / "book.txt"
    if not given:
        book.write_text("the rain in spain stays mainly in the plain\n" * 100)
    prompt = given[1] if len(given) > 1 else "the rain"
    task = plait.lab.tasks.TextTask(text=(str(book),), span=20 if SMOKE else 50, embedding=16)
    fitted = plait.fit(
        plait.RelLSTM(task.input_size, 32 if SMOKE else 128),
        task,
        updates=3 if SMOKE else 300,
        batch_size=4 if SMOKE else 16,
        lr=5e-3,
        evaluate_on=None,
    )
bits = fitted.summary["held_out"]["validation"]["bits_per_character"]
print(f"{bits:.2f} bits per character on held-out text")
print(prompt + "".join(continue_text(fitted.network, task, prompt, length=100, temperature=0.5)))
