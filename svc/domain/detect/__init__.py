"""The rules of detection, pure: what a detector sees of a trace, what the engines make of the sums, what is
said of it. Nothing here does I/O; time and chance are arguments.

`engine` judges tallies against a baseline; `secrets` finds and hides tokens in texts. `detectors` say what of
a trace is counted, one detector a file, and are listed by `detectors.table`. `findings` turn what an engine
says into bucket states, findings and cases. Imports go one way: `engine` and `secrets` know none of the
others, `detectors` know these two, `findings` know `detectors` and `engine`.
"""
