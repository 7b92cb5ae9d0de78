-- Events that say what they cost, by when they happened: for the report of costs.
CREATE INDEX usage_event_cost ON usage_event (at) WHERE cost IS NOT NULL;
