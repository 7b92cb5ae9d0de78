//! The laws that the model uses: utilisation and the wait at c servers (M/M/c, Erlang C).

/// How many servers are busy on average (the utilisation law): arrivals a second times seconds of service.
pub fn busy(rate: f64, service: f64) -> f64 {
    rate * service
}

/// How many servers keep the given part of them busy, at least one.
pub fn servers_for(rate: f64, service: f64, utilisation: f64) -> f64 {
    (busy(rate, service) / utilisation).ceil().max(1.0)
}

/// The chance that a request waits at `servers` servers of which `busy` are busy on average; one where they cannot keep up.
pub fn chance_of_waiting(busy: f64, servers: u32) -> f64 {
    let count = f64::from(servers);
    if busy >= count {
        return 1.0;
    }
    // Erlang B by its recursion, which does not overflow, then Erlang C.
    let blocked = (1..=servers).fold(1.0, |blocked, n| busy * blocked / (f64::from(n) + busy * blocked));
    blocked / (1.0 - (busy / count) * (1.0 - blocked))
}

/// What 99 of 100 waits stay below.
pub fn wait_p99(rate: f64, service: f64, servers: u32) -> f64 {
    let busy = busy(rate, service);
    let free = f64::from(servers) - busy;
    if free <= 0.0 {
        return f64::INFINITY;
    }
    let waits = chance_of_waiting(busy, servers);
    if waits <= 0.01 { 0.0 } else { (waits / 0.01).ln() * service / free }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The average wait before service begins.
    fn mean_wait(rate: f64, service: f64, servers: u32) -> f64 {
        let busy = busy(rate, service);
        let free = f64::from(servers) - busy;
        if free <= 0.0 { f64::INFINITY } else { chance_of_waiting(busy, servers) * service / free }
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-3 * b.abs().max(1e-9)
    }

    #[test]
    fn one_server_waits_as_the_textbook_says() {
        // M/M/1: the chance of waiting is the utilisation, the mean wait is service * u / (1 - u).
        for utilisation in [0.1, 0.5, 0.9] {
            assert!(near(chance_of_waiting(utilisation, 1), utilisation));
            assert!(near(mean_wait(utilisation, 1.0, 1), utilisation / (1.0 - utilisation)));
        }
    }

    #[test]
    fn known_values_of_erlang_c() {
        // Two servers, one busy on average: one third waits.
        assert!(near(chance_of_waiting(1.0, 2), 1.0 / 3.0));
        // Ten servers, eight busy: 0.409, from published tables.
        assert!((chance_of_waiting(8.0, 10) - 0.409).abs() < 0.001);
        assert!(chance_of_waiting(900.0, 1000).is_finite(), "many servers do not overflow");
    }

    #[test]
    fn more_servers_never_wait_longer_and_too_few_wait_for_ever() {
        let waits: Vec<f64> = (3..20).map(|servers| mean_wait(2.0, 1.0, servers)).collect();
        assert!(waits.windows(2).all(|pair| pair[1] < pair[0]), "{waits:?}");
        assert!(mean_wait(2.0, 1.0, 2).is_infinite() && wait_p99(3.0, 1.0, 2).is_infinite());
        assert!(near(chance_of_waiting(3.0, 2), 1.0));
    }

    #[test]
    fn servers_are_counted_whole() {
        assert!(near(servers_for(100.0, 0.01, 0.6), 2.0));
        assert!(near(servers_for(0.0, 0.01, 0.6), 1.0));
    }
}
