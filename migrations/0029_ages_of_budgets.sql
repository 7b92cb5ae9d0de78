-- Budgets of past hours are deleted by their age.
CREATE INDEX send_budget_age ON send_budget (hour);
