//! The crate `spider` follows all links from SEED, with CONCURRENCY requests at once, without robots.txt and delays.
//!
//!     spider-links SEED CONCURRENCY
//!
//! Visited URLs are in memory, as by default; pages are not kept.
use spider::tokio;
use spider::website::Website;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let concurrency = arguments[2].parse().expect("CONCURRENCY is a number");
    let mut website = Website::new(&arguments[1]);
    website
        .with_respect_robots_txt(false)
        .with_delay(0)
        .with_concurrency_limit(Some(concurrency));
    website.crawl_raw().await;
}
