"""The proof of docs/theory/deep-bound.md, step by step: where the published deep upper bound must fail.

With N_3 = v wᵀ and N_l = N beyond, one head's output is (u·z)(ω·x) c(S)^e. If the Hessian of log c has
full rank D = d(d+1)/2, log3 of the separation rank grows at least like (D/2) L.
"""

import numpy as np
import pytest

from plait.depthwidth.rank import thm2_bounds
from plait.depthwidth.rank.field import PRIMES

P = PRIMES[0]


def residues(rng, *shape):
    return rng.integers(0, P, shape)


def times(*factors):
    """A product mod p of int64 matrices of at most 64 columns: nothing overflows."""
    result = factors[0]
    for factor in factors[1:]:
        result = result @ factor % P
    return result


class Jet:
    """A matrix A + s A_s + t A_t + st A_st with s² = t² = 0, mod p: two derivatives at once."""

    def __init__(self, parts):
        self.parts = parts  # four arrays (pairs, rows, columns)

    def __matmul__(self, other):
        if not isinstance(other, Jet):
            return Jet([part @ other % P for part in self.parts])
        a, a_s, a_t, a_st = self.parts
        b, b_s, b_t, b_st = other.parts
        mixed = (a @ b_st % P + a_s @ b_t % P + a_t @ b_s % P + a_st @ b % P) % P
        return Jet([a @ b % P, (a @ b_s + a_s @ b) % P, (a @ b_t + a_t @ b) % P, mixed])

    def __rmatmul__(self, other):
        return Jet([other @ part % P for part in self.parts])

    __array_ufunc__ = None  # numpy asks `__rmatmul__`

    @property
    def T(self):
        return Jet([np.swapaxes(part, -1, -2) for part in self.parts])


def weight(gram, first, second, third_left, third_right, later):
    """c(S) = (ωᵀ S ω)(zᵀ N z), z = Y_2 S Y_2ᵀ v, ω = Y_2ᵀ w, and the pieces; for numbers and for jets."""
    one = gram @ first
    two = one @ gram @ one.T @ second @ one
    z = two @ gram @ two.T @ third_left
    omega = two.T @ third_right
    return (omega.T @ gram @ omega) @ (z.T @ later @ z), z, omega


def hessian_rank(width, seed):
    """Rank mod p of the D × D Hessian of log c at a random symmetric S: of c c'' − c' c'ᵀ."""
    rng = np.random.default_rng(seed)
    first, second, later = (residues(rng, width, width) for _ in range(3))
    left, right = residues(rng, width, 1), residues(rng, width, 1)
    point = np.tril(residues(rng, width, width))
    point = point + np.tril(point, -1).T
    places = [(i, j) for i in range(width) for j in range(i + 1)]
    directions = np.zeros((len(places), width, width), dtype=np.int64)
    for number, (i, j) in enumerate(places):
        directions[number, i, j] = directions[number, j, i] = 1
    size = len(places)
    hessian, gradient, value = np.zeros((size, size), dtype=np.int64), None, None
    for row in range(size):
        others = directions[: row + 1]
        along, here = np.repeat(directions[row : row + 1], row + 1, 0), np.repeat(point[None], row + 1, 0)
        gram = Jet([here, along, others, np.zeros_like(others)])
        c = weight(gram, first, second, left, right, later)[0].parts
        hessian[row, : row + 1], gradient, value = c[3][:, 0, 0], c[2][:, 0, 0], c[0][0, 0, 0]
    hessian = hessian + np.tril(hessian, -1).T
    return eliminate((value * hessian - gradient[:, None] * gradient[None, :] % P) % P)


def eliminate(matrix):
    """Rank over GF(p), row by row: a second elimination, so that this proof rests on no other file."""
    matrix, rank = matrix.copy(), 0
    for column in range(matrix.shape[1]):
        below = np.flatnonzero(matrix[rank:, column])
        if not below.size:
            continue
        matrix[[rank, rank + below[0]]] = matrix[[rank + below[0], rank]]
        matrix[rank] = matrix[rank] * pow(int(matrix[rank, column]), -1, P) % P
        others = matrix[rank + 1 :, column : column + 1] * matrix[rank] % P
        matrix[rank + 1 :] = (matrix[rank + 1 :] - others) % P
        rank += 1
        if rank == len(matrix):
            break
    return rank


@pytest.mark.parametrize(
    ("width", "rank"),
    [(8, 36), (9, 45), (10, 55), (12, 78)]
    + [pytest.param(w, w * (w + 1) // 2, marks=pytest.mark.slow) for w in (11, 13, 14, 15, 16)],
)
def test_hessian_has_full_rank(width, rank):
    assert rank == width * (width + 1) // 2
    assert hessian_rank(width, seed=width) == rank


@pytest.mark.parametrize("width", range(8, 17))
def test_half_of_it_is_a_steeper_slope_than_the_published_one(width):
    """log3 sep grows by D/2 a layer at least, the published bound by 2d + 1: it must be passed."""
    published = thm2_bounds(60, width).upper - thm2_bounds(59, width).upper
    assert published == pytest.approx(2 * width + 1, rel=1e-12)
    assert width * (width + 1) / 4 > published


def test_below_width_eight_the_argument_gives_nothing():
    assert all(width * (width + 1) / 4 <= 2 * width + 1 for width in range(1, 8))


@pytest.mark.parametrize("depth", [3, 4, 5])
@pytest.mark.parametrize("width", [2, 3, 5])
def test_the_word_is_a_power(width, depth):
    """uᵀ Y_L x = (u·z)(ω·x) c^e with e = (3^(L−3) − 1)/2, by multiplying the word out."""
    rng = np.random.default_rng(depth)
    first, second, later = (residues(rng, width, width) for _ in range(3))
    left, right, u, x = (residues(rng, width, 1) for _ in range(4))
    gram = residues(rng, width, width)
    gram = (gram + gram.T) % P
    middles = [first, second, times(left, right.T), *[later] * (depth - 3)]
    word = np.eye(width, dtype=np.int64)
    for middle in middles:
        word = times(word, gram, word.T, middle, word)
    by_word = times(u.T, word, x)[0, 0]
    one = times(gram, first)
    two = times(one, gram, one.T, second, one)
    z, omega = times(two, gram, two.T, left), times(two.T, right)
    c = int(times(omega.T, gram, omega)[0, 0]) * int(times(z.T, later, z)[0, 0]) % P
    power = pow(c, (3 ** (depth - 3) - 1) // 2, P)
    assert by_word == int(times(u.T, z)[0, 0]) * int(times(omega.T, x)[0, 0]) * power % P


def test_jets_are_derivatives():
    """The Hessian of a quadratic form is known: c = (aᵀSb)², c'' = 2 (aᵀEb)(aᵀE'b)."""
    rng = np.random.default_rng(0)
    a, b, s, e, f = (residues(rng, 3, 3) for _ in range(5))
    gram = Jet([s[None], e[None], f[None], np.zeros((1, 3, 3), dtype=np.int64)])
    form = a[:1] @ gram @ b[:, :1]
    square = form @ form
    along = [int(times(a[:1], m, b[:, :1])[0, 0]) for m in (e, f)]
    assert square.parts[3][0, 0, 0] == 2 * along[0] * along[1] % P
