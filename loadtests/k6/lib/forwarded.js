/**
 * What a proxy before the fleet says of a request that came to it encrypted. The load tests speak plain HTTP to the pods, and an application
 * with `force_ssl` and `rewrite_on: [:x_forwarded_proto]`, as `mix phx.new` makes them, would redirect what does not say this.
 */
export const FORWARDED = { 'X-Forwarded-Proto': 'https' };
