"""The number of threads of a training follows the CPU that it gets.

`at_start` sets variables before any library is loaded. `following` holds the number that is wanted, which its own
thread computes from `cpu` and `number`, and sets it from the training's thread between two steps through `libraries`.
"""
