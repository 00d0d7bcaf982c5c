defmodule StashWorkload.MixProject do
  use Mix.Project

  def project do
    [
      app: :stash_workload,
      version: "0.1.0",
      elixir: "~> 1.19",
      start_permanent: Mix.env() == :prod,
      deps: deps(),
      compilers: [:phoenix_live_view] ++ Mix.compilers()
    ]
  end

  def application do
    [
      mod: {StashWorkload.Application, []},
      extra_applications: [:logger, :runtime_tools]
    ]
  end

  # Exact versions: a benchmark names what it measured.
  defp deps do
    [
      {:phoenix, "1.8.9"},
      {:phoenix_html, "4.3.0"},
      {:phoenix_live_view, "1.2.10"},
      # 1.1.0-dev, the commit that the figures in this repository were measured with.
      {:live_stash,
       github: "software-mansion-labs/live-stash", ref: "90ebff164cdae73fb2f7a019b30e372c913cf44d"},
      {:redix, "1.6.0"},
      {:castore, "1.0.19"},
      {:memento, "0.5.0"},
      {:libcluster, "3.5.0"},
      {:jason, "1.4.5"},
      {:bandit, "1.12.5"}
    ]
  end
end
