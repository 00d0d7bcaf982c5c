defmodule Workload.Token do
  @moduledoc """
  Signed and encrypted terms, keyed by SECRET_KEY_BASE and a salt.

  A signed token looks like Phoenix.Token's (`SFMyNTY.` payload `.` HMAC-SHA256). An encrypted one is AES-256-GCM, where
  Phoenix uses XChaCha20; clients treat both as opaque text.
  """

  @type error :: :missing | :invalid | :expired

  # base64url("HS256"), which is how Phoenix marks a signed token.
  @signed "SFMyNTY"
  @encrypted "A256GCM"

  @doc "Signs `term`; the token is accepted for `max_age` seconds."
  @spec sign(String.t(), term(), pos_integer()) :: String.t()
  def sign(salt, term, max_age) do
    body = @signed <> "." <> encode64(pack(term, max_age))
    body <> "." <> encode64(mac(salt, body))
  end

  @doc "Returns the term in a token that `sign/3` made with the same salt."
  @spec verify(String.t(), term()) :: {:ok, term()} | {:error, error()}
  def verify(_salt, nil), do: {:error, :missing}

  def verify(salt, token) when is_binary(token) do
    with [@signed, payload, signature] <- String.split(token, "."),
         {:ok, given} <- decode64(signature),
         true <- equal?(given, mac(salt, @signed <> "." <> payload)),
         {:ok, packed} <- decode64(payload) do
      unpack(packed)
    else
      _other -> {:error, :invalid}
    end
  end

  def verify(_salt, _other), do: {:error, :invalid}

  @doc "Encrypts `term`; the token is accepted for `max_age` seconds."
  @spec encrypt(String.t(), term(), pos_integer()) :: String.t()
  def encrypt(salt, term, max_age) do
    iv = :crypto.strong_rand_bytes(12)
    {cipher, tag} = :crypto.crypto_one_time_aead(:aes_256_gcm, key(salt), iv, pack(term, max_age), @encrypted, true)
    @encrypted <> "." <> encode64(iv <> tag <> cipher)
  end

  @doc "Returns the term in a token that `encrypt/3` made with the same salt."
  @spec decrypt(String.t(), term()) :: {:ok, term()} | {:error, error()}
  def decrypt(_salt, nil), do: {:error, :missing}

  def decrypt(salt, @encrypted <> "." <> sealed) do
    with {:ok, <<iv::binary-12, tag::binary-16, cipher::binary>>} <- decode64(sealed),
         packed when is_binary(packed) <-
           :crypto.crypto_one_time_aead(:aes_256_gcm, key(salt), iv, cipher, @encrypted, tag, false) do
      unpack(packed)
    else
      _other -> {:error, :invalid}
    end
  end

  def decrypt(_salt, _other), do: {:error, :invalid}

  @doc "Compares two texts in a time that does not tell where they differ."
  @spec equal?(binary(), binary()) :: boolean()
  def equal?(one, other), do: byte_size(one) == byte_size(other) and :crypto.hash_equals(one, other)

  defp pack(term, max_age), do: :erlang.term_to_binary({term, System.os_time(:millisecond) + max_age * 1000})

  defp unpack(packed) do
    {term, expires} = :erlang.binary_to_term(packed, [:safe])
    if System.os_time(:millisecond) < expires, do: {:ok, term}, else: {:error, :expired}
  end

  defp mac(salt, body), do: :crypto.mac(:hmac, :sha256, key(salt), body)

  # Deriving a key takes a thousand rounds, so each salt's key is derived once per node.
  defp key(salt) do
    name = {__MODULE__, salt}

    with nil <- :persistent_term.get(name, nil) do
      key = :crypto.pbkdf2_hmac(:sha256, Workload.Config.get().secret_key_base, salt, 1000, 32)
      :persistent_term.put(name, key)
      key
    end
  end

  defp encode64(bytes), do: Base.url_encode64(bytes, padding: false)
  defp decode64(text), do: Base.url_decode64(text, padding: false)
end
