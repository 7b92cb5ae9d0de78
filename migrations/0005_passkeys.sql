-- Passkeys. `key` is the public key with its sign count and backup state, in the form of the library that checks them.
CREATE TABLE passkey (
    credential_id TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    device_name TEXT NOT NULL,
    key TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT
);
CREATE INDEX passkey_of ON passkey (account_id);
