"""Which trainings are recorded, how many steps each does, and which of them also share a core."""

from __future__ import annotations

from collections.abc import Mapping

STEPS: Mapping[str, int] = {
    "vae-pytorch": 4000,
    "vae-keras": 2500,
    "mnist-pytorch": 5000,
    "mnist-keras": 800,
    "gru-pytorch": 3000,
    "gru-keras": 1800,
    "birnn-pytorch": 2000,
    "birnn-keras": 650,
    "rnn-pytorch": 3500,
    "rnn-keras": 1100,
    "dynamic-rnn-pytorch": 5000,
    "dynamic-rnn-keras": 1800,
    "lstm-crf-pytorch": 6000,
}
"""Optimiser steps by name; `trainings/` has a module for each. An LSTM-CRF in Keras is left out, as in the papers."""

PAIRS = (("vae-pytorch", "mnist-pytorch"), ("vae-keras", "gru-pytorch"), ("birnn-pytorch", "lstm-crf-pytorch"))
"""Trainings that are recorded a second time while they share one core."""

SEED = 1
