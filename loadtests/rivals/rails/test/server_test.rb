require "minitest/autorun"
require "json"
require "net/http"
require "socket"
require "tmpdir"
require "websocket/driver"

# The server as it runs in production: Puma with two processes, and Redis between them.
class ServerTest < Minitest::Test
  PORT = 4123
  REDIS = 6391
  IDENTIFIER = JSON.generate({ channel: "RoomChannel", room: "7" })

  # A member of a room, who speaks actioncable-v1-json as the load test does.
  class Member
    attr_reader :url, :heard, :error

    def initialize(origin: "http://127.0.0.1:#{PORT}")
      @url = "ws://127.0.0.1:#{PORT}/cable"
      @tcp = TCPSocket.new("127.0.0.1", PORT)
      @heard = []
      @driver = WebSocket::Driver.client(self, protocols: ["actioncable-v1-json"])
      @driver.set_header("Origin", origin) if origin
      @driver.on(:message) { |event| @heard << JSON.parse(event.data) }
      @driver.on(:error) { |event| @error = event.message }
      @driver.start
    end

    def write(data)
      @tcp.write(data)
    end

    def command(command, data = nil)
      @driver.text(JSON.generate({ command:, identifier: IDENTIFIER, data: data && JSON.generate(data) }.compact))
    end

    # Waits until something like that was heard, and returns it.
    def hear(&wanted)
      limit = Time.now + 20
      until (found = @heard.find(&wanted))
        raise "not heard within 20 s; heard were #{@heard}" if Time.now > limit

        listen
      end
      found
    end

    def listen
      @driver.parse(@tcp.readpartial(65_536)) if @tcp.wait_readable(0.2)
    end

    def close
      @tcp.close
    end
  end

  def setup
    @folder = Dir.mktmpdir
    @redis = spawn("valkey-server", "--port", REDIS.to_s, "--save", "", "--dir", @folder, out: File::NULL)
    environment = { "REDIS_URL" => "redis://127.0.0.1:#{REDIS}/1", "PORT" => PORT.to_s, "WEB_CONCURRENCY" => processes.to_s, "RAILS_ENV" => "production" }
    @puma = spawn(environment, "puma", "--config", "config/puma.rb", chdir: File.expand_path("..", __dir__))
    200.times do
      return if Net::HTTP.get_response(URI("http://127.0.0.1:#{PORT}/healthz")).code == "200"
    rescue SystemCallError
      sleep 0.1
    end
    raise "the server does not answer"
  end

  def teardown
    [@puma, @redis].each { |pid| Process.kill(:TERM, pid) && Process.wait(pid) }
    FileUtils.remove_entry(@folder)
  end

  def processes = 2

  # One that is alone needs no other to watch over it.
  def test_there_are_as_many_processes_as_asked_for
    children = File.read("/proc/#{@puma}/task/#{@puma}/children").split

    assert_equal processes > 1 ? processes : 0, children.size
  end

  # 20 members are not all with one of two processes.
  def test_a_room_hears_what_is_said_in_it_whatever_process_its_members_are_with
    members = Array.new(20) { Member.new }
    # At once, and not after the welcome: the load test does so.
    members.each { |member| member.command("subscribe") }
    members.each { |member| member.hear { |frame| frame["type"] == "confirm_subscription" && frame["identifier"] == IDENTIFIER } }
    members.each_with_index { |member, i| member.command("message", { action: "publish_msg", body: "message #{i}" }) }
    members.each do |member|
      20.times { |i| member.hear { |frame| frame == { "identifier" => IDENTIFIER, "message" => { "body" => "message #{i}" } } } }
      member.hear { |frame| frame["message"] == { "reply" => "ok" } }
    end
  ensure
    members&.each(&:close)
  end

  def test_browsers_of_other_sites_stay_outside
    member = Member.new(origin: "http://elsewhere.example")

    100.times { member.error || member.listen }

    assert_includes member.error, "404"
    assert_empty member.heard
  ensure
    member&.close
  end
end

# The same with one process.
class SingleProcessTest < ServerTest
  def processes = 1
end
