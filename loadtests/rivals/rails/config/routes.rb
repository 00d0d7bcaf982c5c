Rails.application.routes.draw do
  get "healthz" => "rails/health#show"
end
