"""Limiters of CPU on this machine: `base.py` defines the protocol, `choose.py` selects one.

Kept free of imports: the duty cycle's helper process loads this package, and should start in milliseconds.
"""
