"""Why a submission was rejected, or could not be judged: one enumeration, from which documents and tests are made.

JSON, messages of workers and headers of the hostile corpus hold the values. A meaning is a sentence for users.
"""

from __future__ import annotations

from enum import Enum, StrEnum


class Group(Enum):
    """Where a reason comes from; the value heads its table in docs/reasons.md."""

    LOADING = "Building and loading"
    OUTPUT = "What a call gave"
    TRAINING = "Gradients and randomness"
    TIMED = "While it was timed"
    PROCESS = "The process that ran it"
    FINDING = "What a device saw a kernel do"
    ERROR = "Errors, which say nothing about the submission"


class Reason(StrEnum):
    """A member is its value; `meaning` says what happened, `group` where it comes from."""

    meaning: str
    group: Group

    def __new__(cls, value: str, group: Group, meaning: str) -> Reason:
        member = str.__new__(cls, value)
        member._value_ = value
        member.group = group
        member.meaning = meaning
        return member

    # fmt: off
    BUILD_FAILED = "build_failed", Group.LOADING, "The compiler refused the source; the message has its first errors."
    LOAD_FAILED = "load_failed", Group.LOADING, "The file or ModelNew raised an exception, or there is no ModelNew."
    PARAMETERS_NOT_CARRIED = "parameters_not_carried", Group.LOADING, "ModelNew has no place for a weight."
    FORBIDDEN_OP = "forbidden_op", Group.LOADING, "An operator ran that the submission is there to replace."

    RAISED = "raised", Group.OUTPUT, "The call raised an exception."
    WRONG_OUTPUT = "wrong_output", Group.OUTPUT, "The outputs' form or values are not the reference's."
    BAD_OUTPUT = "bad_output", Group.OUTPUT, "The worker named an address for its output that cannot be read."
    INPUT_MODIFIED = "input_modified", Group.OUTPUT, "A call changed its inputs or its upstream gradients."
    SETTING_CHANGED = (
        "setting_changed", Group.OUTPUT, "A call left a setting of PyTorch's changed, or the model's mode."
    )
    WRONG_WHEN_CALLED_AGAIN = (
        "wrong_when_called_again", Group.OUTPUT, "Right in its first call, and wrong in one of those after it."
    )
    OUTPUT_CHANGED = "output_changed", Group.OUTPUT, "An output changed after the call that returned it."
    NOT_DETERMINISTIC = "not_deterministic", Group.OUTPUT, "The same call on the same data gave other bits."

    NO_GRADIENT = "no_gradient", Group.TRAINING, "Something that the reference differentiates got no gradient."
    WRONG_GRADIENT = "wrong_gradient", Group.TRAINING, "A gradient does not belong to the mask that the output shows."
    GRADIENTS_NOT_ADDED = "gradients_not_added", Group.TRAINING, "Two backward passes do not add up in `.grad`."
    GRADCHECK_FAILED = "gradcheck_failed", Group.TRAINING, "gradcheck found a backward that is not the forward's."
    SEED_NOT_FOLLOWED = (
        "seed_not_followed", Group.TRAINING, "Two calls from the same seed, or generator's state, gave other results."
    )
    NOT_RANDOM = "not_random", Group.TRAINING, "What dropout drops is not independent, or not at the rate asked for."

    WRONG_WHEN_TIMED = "wrong_when_timed", Group.TIMED, "A timed call gave a wrong element."
    IMPOSSIBLE_TIME = "impossible_time", Group.TIMED, "A call took less time than moving its bytes takes."
    EXTRA_PROCESSES = "extra_processes", Group.TIMED, "Processes that it started ran beside its calls."
    WORKED_BESIDE_THE_CLOCK = (
        "worked_beside_the_clock", Group.TIMED, "It worked longer between its timed calls than warming up takes."
    )
    RAN_WHILE_HELD = "ran_while_held", Group.TIMED, "It ran on while it was stopped for others to be timed."

    CRASHED = "crashed", Group.PROCESS, "A signal ended the process."
    EXITED = "exited", Group.PROCESS, "The process exited, or closed its connection, before it answered."
    TIMED_OUT = "timed_out", Group.PROCESS, "No answer came in time; --timeout gives more."
    OUT_OF_MEMORY = "out_of_memory", Group.PROCESS, "It needed more memory than a worker may have, or than there is."
    TOO_MANY_PROCESSES = "too_many_processes", Group.PROCESS, "It ran more processes at a time than a worker may."
    TOO_MUCH_DISK = "too_much_disk", Group.PROCESS, "It wrote more files than a worker may."
    CUDA_FAULT = "cuda_fault", Group.PROCESS, "CUDA reported an error, and its context cannot be used any more."
    TAMPERED = "tampered", Group.PROCESS, "What records forbidden operators and findings was changed or silenced."
    BAD_MESSAGE = "bad_message", Group.PROCESS, "The worker sent something that does not answer its request."

    DATA_RACE = "data_race", Group.FINDING, "Unordered threads, launches or copies share bytes, and one writes."
    OUT_OF_BOUNDS = "out_of_bounds", Group.FINDING, "A kernel left its tensor or variable, or used freed memory."
    UNINITIALISED_READ = "uninitialised_read", Group.FINDING, "A kernel read memory that nothing had written."
    WRITE_TO_CONSTANT = "write_to_constant", Group.FINDING, "A kernel wrote a __constant__ variable."
    MISALIGNED_ACCESS = "misaligned_access", Group.FINDING, "An address is no multiple of the access's size."
    HOST_POINTER = "host_pointer", Group.FINDING, "A kernel accessed host memory."
    DIVERGENT_BARRIER = "divergent_barrier", Group.FINDING, "Threads of a block, or blocks of a grid, miss a barrier."
    BAD_SHUFFLE = "bad_shuffle", Group.FINDING, "A warp operation names or reads a lane that does not take part."
    BAD_LAUNCH = "bad_launch", Group.FINDING, "CUDA refused a launch, and nobody handled the error."
    BAD_HANDLE = "bad_handle", Group.FINDING, "CUDA got a stream or event that was destroyed or never made."
    ENDLESS_KERNEL = "endless_kernel", Group.FINDING, "No block of the kernel ended within the time limit."
    STACK_OVERFLOW = "stack_overflow", Group.FINDING, "A thread's local variables need more stack than there is."
    DIVISION_BY_ZERO = "division_by_zero", Group.FINDING, "A kernel divided an integer by zero."
    ASSERTION = "assertion", Group.FINDING, "An assertion in a kernel failed."
    TRAP = "trap", Group.FINDING, "A kernel executed `__trap()` or PTX's `trap`."
    HOST_CODE_IN_KERNEL = "host_code_in_kernel", Group.FINDING, "A kernel threw an exception, or ran on the host."
    SANITIZER_FINDING = "sanitizer_finding", Group.FINDING, "compute-sanitizer found a defect of another kind."

    UNSUPPORTED_BY_EMULATOR = (
        "unsupported_by_emulator", Group.ERROR, "It needs something of CUDA or torch that the emulator does not have."
    )
    TOO_NOISY = "too_noisy", Group.ERROR, "The machine was too busy to time anything; run it again."
    NOT_ENOUGH_MEMORY = (
        "not_enough_memory", Group.ERROR, "There is too little memory here for the case, or others took what there was."
    )
    SANITIZER_FAILED = "sanitizer_failed", Group.ERROR, "A sanitizer tool could not finish, and none found anything."
    NOT_JUDGED = "not_judged", Group.ERROR, "It could not begin, or its caller or a limit ended it."
    HARNESS_ERROR = "harness_error", Group.ERROR, "The harness failed; the message names a file with the traceback."
    # fmt: on


# After these the worker's process is gone, or its CUDA context can no longer be used.
ENDS_THE_WORKER = frozenset({
    Reason.CRASHED, Reason.EXITED, Reason.TIMED_OUT, Reason.OUT_OF_MEMORY, Reason.BAD_MESSAGE, Reason.CUDA_FAULT,
    Reason.TOO_MANY_PROCESSES, Reason.TOO_MUCH_DISK, Reason.EXTRA_PROCESSES, Reason.RAN_WHILE_HELD, Reason.TAMPERED,
})  # fmt: skip
