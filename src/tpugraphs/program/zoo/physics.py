"""Steps of computational physics: incompressible flow (Chorin's projection), gravity, Kuramoto-Sivashinsky (ETDRK4).

After doi 10.1090/S0025-5718-1968-0242392-2 (projection) and doi 10.1137/S1064827502410633 (ETDRK4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tpugraphs.errors import BadRequest
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import sgd_step
from tpugraphs.program.zoo.values import Values

State = dict[str, Any]
Step = Callable[..., State]


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    system: str = "flow",
    size: int = 64,
    steps: int = 1,
    iterations: int = 20,
) -> Made:
    """`batch` simulations side by side, `steps` steps, unrolled; the state stands for the weights.

    `size` is the side of the flow's grid, the number of bodies, or the number of points of the line; `iterations` are
    the flow's, for its pressure. Training moves the first state so that the last one comes closer to a target.
    """
    constants: tuple[Any, ...] = ()
    if system == "flow":
        state, target = (flow_state(values, batch, size) for _ in range(2))
        step = flow(iterations)
    elif system == "bodies":
        state, target = (bodies_state(values, batch, size) for _ in range(2))
        constants = (values.uniform(batch, size, low=0.5 / size, high=1.5 / size),)
        step = leapfrog
    elif system == "spectral":
        state, target = ({"u": values.normal(batch, size)} for _ in range(2))
        step = kuramoto_sivashinsky(size)
    else:
        raise BadRequest(f"physics: no system {system}; there are flow, bodies and spectral")

    def simulate(state: State, *constants: jax.Array) -> State:
        for _ in range(steps):
            state = step(state, *constants)
        return state

    def distance(state: State, target: State, *constants: jax.Array) -> jax.Array:
        squares = jax.tree.map(lambda a, b: ((a - b) ** 2).mean(), simulate(state, *constants), target)
        return jnp.stack(jax.tree.leaves(squares)).sum()

    if mode == "inference":
        return Made(simulate, (state, *constants), weights=state)
    if mode == "train":
        return sgd_step(values, distance, state, target, *constants)
    raise BadRequest(f"physics: no mode {mode}; there are inference and train")


# Incompressible flow on a periodic square: u on the left sides of the cells, v on the lower ones, p at the centres


def flow_state(values: Values, batch: int, size: int) -> State:
    return {
        "u": values.normal(batch, size, size),
        "v": values.normal(batch, size, size),
        "p": values.zeros(batch, size, size),
    }


def flow(iterations: int, *, viscosity: float = 0.01) -> Step:
    """Advection and diffusion, then the pressure that makes the velocity free of divergence."""

    def step(state: State) -> State:
        u, v, p = state["u"], state["v"], state["p"]
        h = 2 * np.pi / u.shape[1]
        dt = 0.1 * h
        v_at_u = mean_of_two(mean_of_two(v, 1, axis=1), -1, axis=2)
        u_at_v = mean_of_two(mean_of_two(u, -1, axis=1), 1, axis=2)
        u, v = (
            u + dt * (viscosity * laplacian(u, h) - u * slope(u, 1, h) - v_at_u * slope(u, 2, h)),
            v + dt * (viscosity * laplacian(v, h) - u_at_v * slope(v, 1, h) - v * slope(v, 2, h)),
        )
        divergence = (shifted(u, -1, 1) - u + shifted(v, -1, 2) - v) / h

        def jacobi(_: int, p: jax.Array) -> jax.Array:
            return 0.2 * p + 0.8 * (neighbours(p) - h * h / dt * divergence) / 4  # else a chessboard would not fade

        p = jax.lax.fori_loop(0, iterations, jacobi, p)
        return {"u": u - dt / h * (p - shifted(p, 1, 1)), "v": v - dt / h * (p - shifted(p, 1, 2)), "p": p}

    return step


def shifted(field: jax.Array, by: int, axis: int) -> jax.Array:
    return jnp.roll(field, by, axis)


def mean_of_two(field: jax.Array, by: int, axis: int) -> jax.Array:
    return (field + shifted(field, by, axis)) / 2


def slope(field: jax.Array, axis: int, h: float) -> jax.Array:
    return (shifted(field, -1, axis) - shifted(field, 1, axis)) / (2 * h)


def neighbours(field: jax.Array) -> jax.Array:
    return shifted(field, 1, 1) + shifted(field, -1, 1) + shifted(field, 1, 2) + shifted(field, -1, 2)


def laplacian(field: jax.Array, h: float) -> jax.Array:
    return (neighbours(field) - 4 * field) / (h * h)


# Bodies that attract each other


def bodies_state(values: Values, batch: int, size: int) -> State:
    return {"position": values.normal(batch, size, 3), "velocity": values.normal(batch, size, 3)}


def leapfrog(state: State, mass: jax.Array, *, dt: float = 0.01) -> State:
    """Half a kick, a drift, half a kick."""
    velocity = state["velocity"] + dt / 2 * gravity(state["position"], mass)
    position = state["position"] + dt * velocity
    return {"position": position, "velocity": velocity + dt / 2 * gravity(position, mass)}


def gravity(position: jax.Array, mass: jax.Array, *, softening: float = 0.05) -> jax.Array:
    """Every body's acceleration by all, in units where the constant of gravity is one."""
    away = position[:, None] - position[:, :, None]  # [batch, the one pulled, the one pulling, 3]
    squares = (away**2).sum(axis=-1) + softening**2
    return (mass[:, None, :, None] * away * (squares**-1.5)[..., None]).sum(axis=2)


# u_t = -u u_x - u_xx - u_xxxx on a periodic line


def kuramoto_sivashinsky(size: int, *, dt: float = 0.25, spacing: float = np.pi / 4) -> Step:
    """A Runge-Kutta step of order four, exact in the linear terms, in Fourier space."""
    k = 2 * np.pi * np.fft.rfftfreq(size, spacing)
    whole, half, q, f1, f2, f3 = (part.astype(np.float32) for part in etdrk4(k**2 - k**4, dt))
    derivative = (-0.5j * k).astype(np.complex64)  # u u_x is half the slope of u squared

    def nonlinear(v: jax.Array) -> jax.Array:
        return jnp.fft.rfft(jnp.fft.irfft(v, size) ** 2) * derivative

    def step(state: State) -> State:
        v = jnp.fft.rfft(state["u"])
        at_v = nonlinear(v)
        a = v * half + at_v * q
        at_a = nonlinear(a)
        b = v * half + at_a * q
        at_b = nonlinear(b)
        c = a * half + (2 * at_b - at_v) * q
        at_c = nonlinear(c)
        v = v * whole + at_v * f1 + (at_a + at_b) * (2 * f2) + at_c * f3
        return {"u": jnp.fft.irfft(v, size)}

    return step


def etdrk4(linear: np.ndarray, dt: float) -> tuple[np.ndarray, ...]:
    """The coefficients of Kassam and Trefethen, as means over a circle around each eigenvalue to avoid cancellation."""
    circle = np.exp(1j * np.pi * (np.arange(1, 33) - 0.5) / 32)
    z = dt * linear[:, None] + circle
    e = np.exp(z)
    q = dt * ((np.exp(z / 2) - 1) / z).mean(axis=1).real
    f1 = dt * ((-4 - z + e * (4 - 3 * z + z**2)) / z**3).mean(axis=1).real
    f2 = dt * ((2 + z + e * (z - 2)) / z**3).mean(axis=1).real
    f3 = dt * ((-4 - 3 * z - z**2 + e * (4 - z)) / z**3).mean(axis=1).real
    return np.exp(dt * linear), np.exp(dt * linear / 2), q, f1, f2, f3
