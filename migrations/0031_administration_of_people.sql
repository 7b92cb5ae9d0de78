-- Platform owners find, disable and enable accounts; app admins block end users from their app.

-- Nobody signs in to an account that is disabled.
ALTER TABLE account ADD COLUMN disabled_at BIGINT;
-- A person who is blocked from an app has no session in it.
ALTER TABLE app_user ADD COLUMN blocked_at BIGINT;

-- Accounts are found by how the words of a name or the email begin, as people are found in an app (app_user_word).
CREATE TABLE account_word (
    word BYTEA NOT NULL,
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    PRIMARY KEY (word, account_id)
);
CREATE INDEX account_word_of ON account_word (account_id, word);

-- Whether the words of an account were written. Older accounts are gone through bit by bit.
ALTER TABLE account ADD COLUMN has_words BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX account_wordless ON account (id) WHERE NOT has_words;

-- Lists of accounts, newest first.
CREATE INDEX account_newest ON account (created_at, id);
CREATE INDEX account_disabled ON account (created_at, id) WHERE disabled_at IS NOT NULL;
CREATE INDEX account_unverified ON account (created_at, id) WHERE NOT email_verified;
CREATE INDEX account_platform_owner ON account (id) WHERE runs_platform;
