import com.alibaba.otter.canal.filter.aviater.AviaterRegexFilter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Canal's own matcher of table filters, led by commands (led.py): match FILTER NAME... answers true or false a name. */
public class Filters {
  public static void main(String[] arguments) throws Exception {
    PrintStream out = new PrintStream(System.out, true, "UTF-8");
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split("\t", -1);
      try {
        AviaterRegexFilter filter = new AviaterRegexFilter(words[1]);
        StringBuilder verdicts = new StringBuilder();
        for (int i = 2; i < words.length; i++) {
          verdicts.append(i > 2 ? "\t" : "").append(filter.filter(words[i]));
        }
        out.println(verdicts + "\nok");
      } catch (Throwable error) { // a stack that overflows, too
        out.println("error\t" + error.toString().replaceAll("[\t\r\n]+", " "));
      }
    }
  }
}
