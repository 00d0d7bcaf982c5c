case Node.start(:"tests@127.0.0.1", name_domain: :longnames) do
  {:ok, _pid} -> Node.set_cookie(:"workload-tests")
  {:error, _reason} -> raise "There is no epmd for the tests; run them with test/run."
end

# The tests break things on purpose, and the workload logs it.
Logger.configure(level: :critical)
ExUnit.start()
