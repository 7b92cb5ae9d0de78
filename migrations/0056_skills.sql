-- The marketplace of skills.

-- Who publishes under a name. A namespace is never given to another organization, not even when its own is gone.
CREATE TABLE skill_namespace (
    namespace TEXT PRIMARY KEY,
    org_id TEXT REFERENCES org (id) ON DELETE SET NULL,
    -- The domain whose reverse it is; none for the slug of an organization.
    domain TEXT,
    created_at BIGINT NOT NULL
);
CREATE INDEX skill_namespace_org ON skill_namespace (org_id);

-- A row stays for ever, so that a version never comes back with other bytes.
CREATE TABLE skill (
    id TEXT PRIMARY KEY,
    slug TEXT NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    -- The name without what makes two names look alike.
    skeleton TEXT NOT NULL,
    org_id TEXT REFERENCES org (id) ON DELETE SET NULL,
    domain TEXT,
    is_verified BOOLEAN NOT NULL,
    visibility TEXT NOT NULL,
    state TEXT NOT NULL,
    -- Public, active, and with a published version: in lists and in the search.
    is_listed BOOLEAN NOT NULL,
    description TEXT NOT NULL,
    license TEXT,
    tags TEXT NOT NULL,
    latest_id TEXT,
    latest_version TEXT,
    stars BIGINT NOT NULL DEFAULT 0,
    installs BIGINT NOT NULL DEFAULT 0,
    downloads BIGINT NOT NULL DEFAULT 0,
    ratings_1 BIGINT NOT NULL DEFAULT 0,
    ratings_2 BIGINT NOT NULL DEFAULT 0,
    ratings_3 BIGINT NOT NULL DEFAULT 0,
    ratings_4 BIGINT NOT NULL DEFAULT 0,
    ratings_5 BIGINT NOT NULL DEFAULT 0,
    -- The Bayesian score in thousandths, and the day whose mean it was computed with.
    score BIGINT NOT NULL,
    scored_on BIGINT NOT NULL,
    popularity BIGINT NOT NULL DEFAULT 0,
    -- The logarithm of the popularity, as it stands in the words of the skill.
    weight BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX skill_popular ON skill (popularity, id) WHERE is_listed;
CREATE INDEX skill_recent ON skill (updated_at, id) WHERE is_listed;
CREATE INDEX skill_rated ON skill (score, id) WHERE is_listed;
CREATE INDEX skill_namespace_listed ON skill (namespace, is_listed);
CREATE INDEX skill_of_org ON skill (org_id, created_at, id);
CREATE INDEX skill_installed_much ON skill (installs) WHERE installs >= 100;
CREATE INDEX skill_scored ON skill (scored_on);
CREATE INDEX skill_under_review ON skill (updated_at, id) WHERE state = 'under_review';

CREATE TABLE skill_version (
    id TEXT PRIMARY KEY,
    skill_id TEXT NOT NULL REFERENCES skill (id),
    version TEXT NOT NULL,
    digest TEXT NOT NULL,
    size BIGINT NOT NULL,
    -- The package as it was sent, and its files one after the other.
    object TEXT NOT NULL,
    pack TEXT NOT NULL,
    files TEXT NOT NULL,
    frontmatter TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    verdict TEXT NOT NULL,
    engine BIGINT NOT NULL,
    findings TEXT NOT NULL,
    -- What is signed, to the letter; none before it is published.
    manifest TEXT,
    signature TEXT,
    key_id TEXT,
    published_by TEXT REFERENCES account (id) ON DELETE SET NULL,
    created_at BIGINT NOT NULL,
    published_at BIGINT,
    UNIQUE (skill_id, version)
);
CREATE INDEX skill_version_newest ON skill_version (skill_id, created_at, id);
CREATE INDEX skill_version_review ON skill_version (created_at, id) WHERE state = 'in_review';
CREATE INDEX skill_version_engine ON skill_version (engine, id);
CREATE INDEX skill_version_digest ON skill_version (digest);

-- The description of a version, drawn.
CREATE TABLE skill_readme (
    version_id TEXT PRIMARY KEY REFERENCES skill_version (id),
    html TEXT NOT NULL
);

-- Objects, each before its bytes. One without a version is deleted after a while.
CREATE TABLE skill_object (
    object TEXT PRIMARY KEY,
    version_id TEXT,
    created_at BIGINT NOT NULL
);
CREATE INDEX skill_object_unused ON skill_object (created_at) WHERE version_id IS NULL;
CREATE INDEX skill_object_version ON skill_object (version_id);

-- The keys that sign. They stay published for ever.
CREATE TABLE skill_key (
    id TEXT PRIMARY KEY,
    sealed BYTEA NOT NULL,
    public_key TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    signs_from BIGINT NOT NULL
);

CREATE TABLE skill_tag (
    tag TEXT NOT NULL,
    skill_id TEXT NOT NULL REFERENCES skill (id),
    PRIMARY KEY (tag, skill_id)
);
CREATE INDEX skill_tag_skill ON skill_tag (skill_id);

-- What listed skills are found by, the heaviest first.
CREATE TABLE skill_word (
    word TEXT NOT NULL,
    weight BIGINT NOT NULL,
    skill_id TEXT NOT NULL REFERENCES skill (id),
    PRIMARY KEY (word, weight, skill_id)
);
CREATE INDEX skill_word_skill ON skill_word (skill_id, word);
