// One array that several threads read, among others and much garbage, so that collectors move it. Prints the sum of what was read, and how often they ran.
//
// Collected LENGTH ROUNDS GARBAGE: doubles in the array, walks over it, and blocks of garbage before each walk.

import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Collections;

public class Collected {
    static double[] read;
    static long[] quiet;
    static Object kept;
    static Object garbage;
    static double sum;

    /** One element of each cache line is written, and read later. */
    static void fill(int length) {
        read = new double[length]; // LINE read
        for (int i = 0; i < length; i += 8) read[i] = 1;
    }

    static void walk() {
        double found = 0;
        for (int i = 0; i < read.length; i += 8) found += read[i];
        sum += found;
    }

    public static void main(String[] arguments) throws InterruptedException {
        int length = Integer.parseInt(arguments[0]), rounds = Integer.parseInt(arguments[1]), blocks = Integer.parseInt(arguments[2]);
        fill(length);
        quiet = new long[length / 4]; // LINE quiet
        kept = new ArrayList<>(Collections.nCopies(50_000, "x")); // LINE copies
        for (int round = 0; round < rounds; round++) {
            for (int i = 0; i < blocks; i++) garbage = new byte[10_000]; // LINE garbage
            System.gc();
            Thread reader = new Thread(Collected::walk, "reader with a long name");
            reader.start();
            reader.join();
        }
        long collections = 0;
        if (blocks > 0)
            for (GarbageCollectorMXBean bean : ManagementFactory.getGarbageCollectorMXBeans()) collections += bean.getCollectionCount();
        System.out.println((long) sum + " " + collections);
    }
}
