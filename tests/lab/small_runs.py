"""Arguments of runs that take about a second, for tests of whole commands."""

import shlex

COPY = shlex.split(
    "train copy --model relrnn --hidden 8 --delay 3 --window 3 --capacity 2 --record-every 1 --evaluate-on 8 "
    "--device cpu"
)
POLICY = shlex.split(
    "--hidden 8 --n-envs 4 --n-steps 10 --total-timesteps 1.2e2 --n-minibatches 2 --n-epochs 1 "
    "--evaluate-on 2 --quiet"
)
