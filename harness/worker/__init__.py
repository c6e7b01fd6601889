"""The only code that runs beside a submission, in a process of its own."""
