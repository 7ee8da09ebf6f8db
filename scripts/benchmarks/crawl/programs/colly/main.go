// Colly follows all links from SEED, with CONCURRENCY requests at once and as many kept connections.
//
//	colly SEED CONCURRENCY
//
// Visited URLs are in memory, as by default. A failed request ends it with status 1.
package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/gocolly/colly/v2"
)

func main() {
	concurrency, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	crawler := colly.NewCollector(colly.Async(true))
	if err := crawler.Limit(&colly.LimitRule{DomainGlob: "*", Parallelism: concurrency}); err != nil {
		panic(err)
	}
	// By default two idle connections per host are kept; the others are opened anew for each request.
	crawler.WithTransport(&http.Transport{
		MaxIdleConns:        2 * concurrency,
		MaxIdleConnsPerHost: concurrency,
		DisableCompression:  true,
	})
	var failed atomic.Int64
	crawler.OnError(func(answer *colly.Response, err error) {
		failed.Add(1)
		fmt.Fprintln(os.Stderr, answer.Request.URL, err)
	})
	crawler.OnHTML("a[href]", func(element *colly.HTMLElement) {
		_ = element.Request.Visit(element.Attr("href")) // a known URL is an error, too
	})
	if err := crawler.Visit(os.Args[1]); err != nil {
		panic(err)
	}
	crawler.Wait()
	if failed.Load() > 0 {
		os.Exit(1)
	}
}
