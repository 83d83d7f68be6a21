// SPDX-FileCopyrightText: 2026 The airflow-resumable authors
// SPDX-License-Identifier: Apache-2.0

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;

/** Has an executor count three numbers and sleeps: SleepApp SECONDS [MARKER-FILE|-] [fail]. */
public class SleepApp {
    public static void main(String[] args) throws Exception {
        long millis = Math.round(Double.parseDouble(args[0]) * 1000);
        try (JavaSparkContext spark = new JavaSparkContext(new SparkConf())) {
            String application = spark.sc().applicationId();
            if (args.length > 1 && !args[1].equals("-")) {
                // One line for each start: two lines are a job that ran twice.
                Files.writeString(Path.of(args[1]), ProcessHandle.current().pid() + " " + application + "\n",
                        StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            }
            System.out.println("COUNT=" + spark.parallelize(List.of(1, 2, 3), 1).count() + " APP=" + application);
            Thread.sleep(millis);
        }
        if (args.length > 2 && args[2].equals("fail")) {
            System.exit(3);
        }
    }
}
