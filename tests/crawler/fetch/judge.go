// Reads the URLs on standard input with Go's net/http, once each; prints a line of JSON for each.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"time"
)

type reading struct {
	Status int
	Body   []byte
	Error  string
}

func read(client *http.Client, url string) (found reading) {
	answer, err := client.Get(url)
	if err != nil {
		return reading{Error: err.Error()}
	}
	defer answer.Body.Close()
	found.Status = answer.StatusCode
	if found.Body, err = io.ReadAll(answer.Body); err != nil {
		found.Error = err.Error()
	}
	return found
}

func main() {
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		Timeout:       5 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	urls, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for urls.Scan() {
		if err := out.Encode(read(client, urls.Text())); err != nil {
			panic(err)
		}
	}
}
