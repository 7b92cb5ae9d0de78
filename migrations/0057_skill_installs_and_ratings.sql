-- What people do with skills.
CREATE TABLE skill_star (
    skill_id TEXT NOT NULL REFERENCES skill (id),
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (skill_id, account_id)
);
CREATE INDEX skill_star_account ON skill_star (account_id, created_at);

CREATE TABLE skill_install (
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    skill_id TEXT NOT NULL REFERENCES skill (id),
    version_id TEXT NOT NULL REFERENCES skill_version (id),
    first_installed_at BIGINT NOT NULL,
    installed_at BIGINT NOT NULL,
    -- The version whose end its user was told of.
    told_of TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (account_id, skill_id)
);
CREATE INDEX skill_install_newest ON skill_install (account_id, installed_at, skill_id);
CREATE INDEX skill_install_skill ON skill_install (skill_id, account_id);

CREATE TABLE skill_rating (
    skill_id TEXT NOT NULL REFERENCES skill (id),
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    stars BIGINT NOT NULL,
    comment TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (skill_id, account_id)
);
CREATE INDEX skill_rating_account ON skill_rating (account_id);

-- One a person and skill. Reporters are shown to nobody.
CREATE TABLE skill_report (
    id TEXT PRIMARY KEY,
    skill_id TEXT NOT NULL REFERENCES skill (id),
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    version TEXT,
    reason TEXT NOT NULL,
    detail TEXT,
    -- Whether it counts towards the threshold, from which organization and from which network (a keyed hash).
    counts BOOLEAN NOT NULL,
    org_key TEXT NOT NULL,
    network_key TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    decided_at BIGINT,
    UNIQUE (skill_id, account_id)
);
CREATE INDEX skill_report_account ON skill_report (account_id, decided_at);
CREATE INDEX skill_report_open ON skill_report (skill_id, created_at) WHERE state = 'open';
