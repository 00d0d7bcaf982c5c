require "rails"
# What a chat needs of Rails; `rails new --minimal` leaves out the rest.
require "action_controller/railtie"
require "action_cable/engine"

# Action Cable 7.2 asks for a redis-rb below 6, and Debian has 6.0 beside it. What it uses of it is the same; test/server_test.rb looks.
TOPLEVEL_BINDING.receiver.define_singleton_method(:gem) do |name, *requirements|
  name == "redis" || super(name, *requirements)
end

module Chat
  class Application < Rails::Application
    config.load_defaults 7.2

    # As `rails new` writes config/environments/production.rb: everything loaded at the start, no errors shown, logs on stdout.
    config.enable_reloading = Rails.env.test?
    config.eager_load = true
    config.consider_all_requests_local = false
    # A line for each message would be most of the work under load; Phoenix logs warnings only, too.
    config.log_level = :warn
    config.logger = ActiveSupport::Logger.new($stdout)

    # Nothing here is signed, but Rails asks for it.
    config.secret_key_base = ENV.fetch("SECRET_KEY_BASE") { SecureRandom.hex(64) }

    # Where the guide puts it, in the same processes as the rest. Four threads of each process do the work: Rails' default.
    config.action_cable.mount_path = "/cable"
    config.action_cable.worker_pool_size = Integer(ENV.fetch("CABLE_WORKERS", "4"))
  end
end
