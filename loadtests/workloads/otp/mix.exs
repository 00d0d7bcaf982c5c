defmodule Workload.MixProject do
  use Mix.Project

  def project do
    [
      app: :workload,
      version: "0.1.0",
      elixir: "~> 1.20",
      elixirc_paths: elixirc_paths(Mix.env()),
      start_permanent: Mix.env() == :prod,
      releases: [workload: [include_executables_for: [:unix]]]
    ]
  end

  # mnesia is started before the application, as memento does it for LiveStash. runtime_tools is not called here: a release
  # has it, and tracing is not possible without.
  #
  # cowboy is not a dependency in mix's sense: it comes from the distribution's erlang-cowboy package, which puts it
  # into Erlang's own library folder. Naming it here is enough for mix to find it and to copy it into the release.
  def application do
    [mod: {Workload.Application, []}, extra_applications: [:logger, :crypto, :cowboy, :mnesia, :ssl, :runtime_tools]]
  end

  defp elixirc_paths(:test), do: ["lib", "test/support"]
  defp elixirc_paths(_env), do: ["lib"]
end
