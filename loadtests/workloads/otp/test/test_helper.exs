# The tests break things on purpose, and the workload logs it.
Logger.configure(level: :critical)
ExUnit.start()
