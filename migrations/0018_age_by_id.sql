-- An id begins with the moment it was made, so what is old is found by it.
DROP INDEX app_event_age;
DROP INDEX webhook_delivery_age;
DROP INDEX webhook_delivery_untried;
