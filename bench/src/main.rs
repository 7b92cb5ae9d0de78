//! The command; everything is in the library beside it, so that tests can use the seeder.

/// The same as in `janua`, so that the bare server and the raw database calls allocate at the same price.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    kernel::pages::keep_small();
    bench::run()
}
