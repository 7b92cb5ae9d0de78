-- Sums of active_gap, so that the figures of a range of days read a few rows for each of its days.

-- How many people were seen on a day, and how many of them for the first time.
CREATE TABLE active_day (
    scope TEXT NOT NULL,
    day BIGINT NOT NULL,
    users BIGINT NOT NULL,
    new_users BIGINT NOT NULL,
    PRIMARY KEY (scope, day)
);

-- How many people were seen on a day, by sixteen gaps: block 0 has those of 1 to 16 days, block 1 those of 17 to 32.
CREATE TABLE active_block (
    scope TEXT NOT NULL,
    day BIGINT NOT NULL,
    block BIGINT NOT NULL,
    users BIGINT NOT NULL,
    PRIMARY KEY (scope, day, block)
);

INSERT INTO active_day (scope, day, users, new_users)
SELECT scope, day, SUM(users), SUM(CASE WHEN gap = 0 THEN users ELSE 0 END) FROM active_gap GROUP BY scope, day;

INSERT INTO active_block (scope, day, block, users)
SELECT scope, day, (gap - 1) / 16, SUM(users) FROM active_gap WHERE gap > 0 GROUP BY scope, day, (gap - 1) / 16;
