require "concurrent"

abort "REDIS_URL is missing: set it to a Redis, such as redis://redis:6379/1." if ENV["REDIS_URL"].to_s.empty?

# As Rails 7.2 and Puma's own guide have it: three threads in each process, and a process for each CPU that the pod may use. A single process has
# none to watch over it.
threads_count = Integer(ENV.fetch("RAILS_MAX_THREADS", "3"))
threads threads_count, threads_count
processes = Integer(ENV.fetch("WEB_CONCURRENCY", [Concurrent.available_processor_count.floor, 1].max.to_s))
# Without a number Puma takes WEB_CONCURRENCY.
workers processes > 1 ? processes : 0
preload_app! if processes > 1

port Integer(ENV.fetch("PORT", "4000"))
environment ENV.fetch("RAILS_ENV", "production")
