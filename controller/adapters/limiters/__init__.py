"""Ways of giving and limiting CPU on this machine; `choose.py` picks one, `base.py` says what each must do.

Kept free of imports: the duty cycle's helper process loads this package, and should start in milliseconds.
"""
