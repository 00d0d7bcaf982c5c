module ApplicationCable
  # Anybody may come, as to the rivals in other languages.
  class Connection < ActionCable::Connection::Base
  end
end
