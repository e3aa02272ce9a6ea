"""A crowd before a fresh gateway: an engine whose launcher says what it runs, and one of which that is learned.

`python -m bench.admission.cold`, in calculated time (simulated.py); prints Markdown.
"""

from bench.admission.simulated import Machine, crowd


def main() -> None:
    """Let as many ask at once as the engine runs."""
    for sequences in (16, 64, 256, 1024):
        machine = Machine(sequences, 0.04)
        told, learned = (crowd(machine, sequences, told=told) for told in (True, False))
        print(f"| {sequences} | {told[0]:.2f} | {learned[0]:.2f} | {learned[1] - told[1]} |", flush=True)


if __name__ == "__main__":
    main()
