"""Limiters of CPU on this machine: `choose.py` says what one does, and selects it.

Kept free of imports: the duty cycle's helper process loads this package, and should start in milliseconds.
"""
