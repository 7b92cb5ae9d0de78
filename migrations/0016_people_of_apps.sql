-- The people of an app are found by how the words of their names and their addresses begin, however many they are.

-- Only words the app may know. As bytes, which both engines order alike: what begins with the same letters stands
-- together.
CREATE TABLE app_user_word (
    app_id TEXT NOT NULL,
    account_id TEXT NOT NULL,
    word BYTEA NOT NULL,
    PRIMARY KEY (app_id, word, account_id),
    FOREIGN KEY (app_id, account_id) REFERENCES app_user (app_id, account_id) ON DELETE CASCADE
);
CREATE INDEX app_user_word_of ON app_user_word (app_id, account_id, word);

-- Whether the words of a person were written. Those who came before there were any are gone through bit by bit.
ALTER TABLE app_user ADD COLUMN has_words BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX app_user_wordless ON app_user (app_id, account_id) WHERE NOT has_words;

-- Read whenever a node starts.
CREATE INDEX app_with_origins ON app (id) WHERE allowed_origins <> '[]';

-- Those who look after an organization are few, however many its members are. A question that says `role <> 'member'`
-- is answered from here.
CREATE INDEX org_member_caring ON org_member (org_id, joined_at, account_id) WHERE role <> 'member';
