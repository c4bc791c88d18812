// One goroutine allocates and fills a table; four others read it. Usage: table ROUNDS
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

const cells = 1 << 20

func fill() []int64 {
	table := make([]int64, cells)
	for at := range table {
		table[at] = int64(at) * 31
	}
	return table
}

func read(table []int64, rounds int) (sum int64) {
	for round := 0; round < rounds; round++ {
		kept := make([]*int64, 1024)
		for at, value := range table {
			sum += value
			if at%64 == 0 {
				one := sum
				kept[at/64%len(kept)] = &one
			}
		}
		sum += *kept[0]
	}
	return sum
}

func main() {
	rounds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "usage: table ROUNDS")
		os.Exit(2)
	}
	made := make(chan []int64)
	go func() { made <- fill() }()
	table := <-made
	var sums [4]int64
	var readers sync.WaitGroup
	for reader := range sums {
		readers.Add(1)
		go func(reader int) {
			defer readers.Done()
			sums[reader] = read(table, rounds)
		}(reader)
	}
	readers.Wait()
	fmt.Println(sums[0] == sums[3])
}
